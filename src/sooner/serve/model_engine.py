"""`sooner.Engine` as the engine's thread wants it: an `EngineLike` over a loaded model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ..engine.memory.media import count_media
from ..engine.request import Request
from ..engine.scheduler import Engine

NO_TOKEN = -1
"""A stop id that no token has; without any, `generate` takes those of the model's config."""


class ModelEngine(Engine):
    """An engine that takes tensors of CPUs, and what `JobOptions` says of jobs."""

    def add_request(
        self, inputs: Mapping[str, Any], *, media_keys: Sequence[str] = (), **options: Any
    ) -> Request:
        """Queue a request; see `Engine.add_request`.

        Args:
            media_keys: as there, but of no use where a processor made another number of pictures of
                what it was given, such as tiles: the engine then takes hashes of the pixels.
        """
        keys = media_keys if len(media_keys) == count_media(inputs) else ()
        device = self.model.get_input_embeddings().weight.device
        placed = {
            name: value.to(device) if isinstance(value, Tensor) else value
            for name, value in inputs.items()
        }
        if "eos_token_id" in options and not options["eos_token_id"]:
            options["eos_token_id"] = NO_TOKEN
        return super().add_request(placed, media_keys=keys, **options)
