"""Cosmos autoregressive video models: the vocabulary is codes, the prompt the start of a clip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base import Adapter


class CosmosAR(Adapter):
    """Continues a clip: `input_ids` are its first codes in raster order.

    Positions are raster indices, so they count tokens as a text model's do. Frame, row and column
    are worked out inside of the decoder, and so are absolute positions.
    """

    model_types = ("cosmos_ar",)

    @property
    def latent_shape(self) -> tuple[int, int, int]:
        """Codes of a clip as (frames, height, width)."""
        return self.config.latent_shape

    def prompt_arguments(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {"inputs_embeds": self.embedding(inputs["input_ids"])}
