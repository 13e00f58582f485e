"""Model families: one thin file each, found by the `model_type` of the model's config."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..errors import SoonerError, did_you_mean
from .base import Adapter
from .canvas import Canvas, Sampling
from .cosmos_ar import CosmosAR
from .janus import Janus, JanusCanvas
from .llava_onevision import LlavaOnevision
from .qwen2_5_vl import Qwen25VL
from .qwen3_vl import Qwen3VL
from .text import TextModel

FAMILIES: dict[str, type[Adapter]] = {
    model_type: family
    for family in (CosmosAR, Janus, LlavaOnevision, Qwen25VL, Qwen3VL, TextModel)
    for model_type in family.model_types
}


def adapt(model: nn.Module) -> Adapter:
    """The adapter of a loaded HF model.

    Raises:
        SoonerError: no family handles the model's `model_type`.
    """
    config = getattr(model, "config", None)
    model_type = getattr(config, "model_type", type(model).__name__)
    if model_type not in FAMILIES:
        raise SoonerError(
            f"model type '{model_type}' is not supported{did_you_mean(model_type, FAMILIES)}; "
            f"supported: {', '.join(sorted(FAMILIES))} (docs/add-a-model.md says how to add one)"
        )
    return FAMILIES[model_type](model)


CANVASES: dict[str, type[Canvas]] = {
    model_type: family for family in (JanusCanvas,) for model_type in family.model_types
}


def canvas(model: nn.Module, **size: int | None) -> Canvas:
    """The adapter by which a loaded model draws.

    Args:
        size: `height` and `width` in pixels, for families that draw in several sizes.

    Raises:
        SoonerError: no family draws with the model's `model_type`, or not in this size.
    """
    config = getattr(model, "config", None)
    model_type = getattr(config, "model_type", type(model).__name__)
    if model_type not in CANVASES:
        raise SoonerError(
            f"model type '{model_type}' draws no pictures{did_you_mean(model_type, CANVASES)}; "
            f"supported: {', '.join(sorted(CANVASES))}"
        )
    family: Any = CANVASES[model_type]
    return family(model, **size)


__all__ = ["CANVASES", "FAMILIES", "Adapter", "Canvas", "Sampling", "adapt", "canvas"]
