"""The adapter that decodes an OpenVLA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..base import Adapter, decoder_arguments


class OpenVLA(Adapter):
    """The adapter that gives every token one running position, patches included."""

    model_types = ("openvla",)

    def prompt_arguments(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The model's own errors name what is wrong already."""
        return decoder_arguments(self.model.model, self.decoder, inputs)

    def embed_tokens(self, tokens: Tensor) -> Tensor:
        """A placeholder that was generated is embedded as the model does: as id 0."""
        return self.embedding(tokens.masked_fill(tokens == self.config.image_token_id, 0))
