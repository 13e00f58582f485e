"""Tiny models by their model type, with configs named by type, so that older versions import it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import transformers
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from . import words

SPECIAL: dict[str, Any] = {
    "pad_token_id": words.PAD, "bos_token_id": words.BOS, "eos_token_id": words.EOS,
}  # fmt: skip
TEXT: dict[str, Any] = {
    "vocab_size": words.VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "max_position_embeddings": 512, "tie_word_embeddings": False, **SPECIAL,
}  # fmt: skip
VISION: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "image_size": 28, "patch_size": 7,
}  # fmt: skip


def tiny(model_type: str, **config: Any) -> Callable[[], Any]:
    """Builds a model of a type with random weights.

    Args:
        config: of the type; parts of it are dicts, with a `model_type` where that may be another.
    """
    return functools.partial(_built, model_type, config)


def _built(model_type: str, config: dict[str, Any]) -> Any:
    built = getattr(transformers, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES[model_type])
    # Experts one by one: what multiplies them at once knows no fp64.
    return built._from_config(
        AutoConfig.for_model(model_type, **config), experts_implementation="eager"
    )


def takes(model: Any, name: str) -> bool:
    """Whether a model's forward has an argument, which may be new in a version of transformers."""
    return name in inspect.signature(model.forward).parameters
