"""Model families: one thin file each, found by the `model_type` of the model's config."""

from __future__ import annotations

import inspect
from typing import Any

import transformers
from torch import nn
from transformers.cache_utils import Cache
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from ..errors import SoonerError, UnsupportedError, did_you_mean
from .base import Adapter, TextModel, keeps_states
from .canvas import Canvas, Sampling
from .chameleon import Chameleon, ChameleonCanvas
from .cosmos_ar.canvas import CosmosAR, CosmosCanvas
from .emu3 import Emu3Canvas
from .janus import JanusCanvas
from .openvla.adapter import OpenVLA
from .parsers import AxesParser, DeepSeekOCR, DotsOCR, HunYuanVL
from .video import LlavaOnevision, Qwen3VL, Qwen25VL, SmolVLM

_ADAPTERS = (
    AxesParser, Chameleon, CosmosAR, DeepSeekOCR, DotsOCR, HunYuanVL, LlavaOnevision, OpenVLA,
    Qwen25VL, Qwen3VL, SmolVLM, TextModel,
)  # fmt: skip
_PLAIN = ("deepseek_ocr2", "emu3", "got_ocr2", "janus", "lighton_ocr", "qianfan_ocr")
"""Types with features for placeholder tokens, one running position, and a decoder that sees
backwards only, which is all that `Adapter` takes for granted."""
_CANVASES = (ChameleonCanvas, CosmosCanvas, Emu3Canvas, JanusCanvas)

FAMILIES: dict[str, type[Adapter]] = dict.fromkeys(_PLAIN, Adapter) | {
    model_type: family for family in _ADAPTERS for model_type in family.model_types
}
CANVASES: dict[str, type[Canvas]] = {
    model_type: family for family in _CANVASES for model_type in family.model_types
}


def adapt(model: nn.Module | Adapter) -> Adapter:
    """Returns the adapter of a loaded HF model: its family's, or else the generic one.

    An adapter is returned as it is, so a method may be handed one in the place of a model.

    A model that no family handles is compared with its own `generate` when it is first seen
    (`generic_check.self_check`); the log tells.

    Raises:
        SoonerError: no family handles the model's `model_type`, and the generic adapter can't.
    """
    if isinstance(model, Adapter):
        return model
    model_type = _model_type(model)
    if model_type in FAMILIES:
        return FAMILIES[model_type](model)
    try:
        adapter = unproved(model)
        adapter.prove()
    except UnsupportedError as error:
        # A type of transformers' own is meant as it is: 'mamba' is no slip for 'llama'.
        is_known = model_type in CONFIG_MAPPING_NAMES
        hint = "" if is_known else did_you_mean(model_type, FAMILIES)
        raise SoonerError(
            f"model type '{model_type}' is not supported{hint}: {error}; supported: "
            f"{', '.join(sorted(FAMILIES))} (docs/add-a-model.md says how to add one)"
        ) from error
    return adapter


def unproved(model: Any) -> Any:
    """Returns the generic adapter of a model, not compared with its `generate` yet.

    Raises:
        UnsupportedError: its config or its signatures rule it out.
    """
    from .generic import generic_type  # most models have an adapter of their own
    from .prompt_attention import adapter_type

    if keeps_states(model):
        if not hasattr(Cache, "get_conv_state"):
            raise UnsupportedError(
                f"layers of {type(model).__name__} keep a state, which transformers "
                f"{transformers.__version__} hands out otherwise than 5.23; install that"
            )
        from .recurrent import RECURRENT

        return RECURRENT[generic_type(model)](model)
    return adapter_type(model)(model)


def canvas(model: nn.Module, **options: Any) -> Canvas:
    """Returns the adapter by which a loaded model draws.

    Args:
        options: what the family's canvas takes, such as `height` and `width` in pixels, `layout`
            and `decoder` (Chameleon), `prefix` and `tokenizer` (Cosmos). `None` is its default.

    Raises:
        SoonerError: no family draws with the model's `model_type`, or not in this size; an option
            that the family does not know.
    """
    model_type = _model_type(model)
    if model_type not in CANVASES:
        raise SoonerError(
            f"model type '{model_type}' draws no pictures{did_you_mean(model_type, CANVASES)}; "
            f"supported: {', '.join(sorted(CANVASES))}"
        )
    family: Any = CANVASES[model_type]
    values = {name: value for name, value in options.items() if value is not None}
    known = list(inspect.signature(family).parameters)[1:]  # without the model
    for name in values:
        if name not in known:
            raise SoonerError(
                f"{family.__name__} has no option '{name}'{did_you_mean(name, known)}; it takes "
                f"{', '.join(known)}"
            )
    return family(model, **values)


def _model_type(model: nn.Module) -> str:
    config = getattr(model, "config", None)
    return getattr(config, "model_type", type(model).__name__)


__all__ = ["CANVASES", "FAMILIES", "Adapter", "Canvas", "Sampling", "adapt", "canvas"]
