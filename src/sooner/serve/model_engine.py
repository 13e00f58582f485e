"""`sooner.Engine` as the engine's thread wants it: an `EngineLike` over a loaded model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ..engine import Engine
from ..request import Request

NO_TOKEN = -1
"""A stop id that no token has; without any, `generate` takes those of the model's config."""


class ModelEngine(Engine):
    """An engine that takes tensors of CPUs, and what `JobOptions` says of jobs."""

    def admit(
        self, inputs: Mapping[str, Any], *, said: Sequence[int] = (), **options: Any
    ) -> Request:
        """Queue a request; see `Engine.admit`.

        Args:
            said: tokens that it committed before it lost its row (`session_of`).
        """
        device = self.model.get_input_embeddings().weight.device
        placed = {
            name: value.to(device) if isinstance(value, Tensor) else value
            for name, value in inputs.items()
        }
        if "eos_token_id" in options and not options["eos_token_id"]:
            options["eos_token_id"] = NO_TOKEN
        return super().admit(placed, said=said, **options)
