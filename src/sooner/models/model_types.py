"""The `model_type` of a checkpoint, whether it is supported, and whether it needs its own code."""

from __future__ import annotations

import struct
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from huggingface_hub.utils import HFValidationError
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

from ..checkpoints import checkpoint, hub_problem, installed
from ..errors import SoonerError, did_you_mean, reason_of
from . import FAMILIES, unproved
from .base import TextModel
from .openvla.adapter import OpenVLA

CLASSES: tuple[Any, ...] = (AutoModelForImageTextToText, AutoModelForCausalLM, AutoModel)
"""By which a config's `auto_map` may name a model, the best first."""

BUILT_HERE = (*OpenVLA.model_types, "llava_video")
"""Types that transformers has no class for."""

COMMON = ("qwen3_vl", "qwen2_5_vl", "llava_onevision")
"""Types that people look for when a model does not see."""


def brings_code(config: dict[str, Any]) -> bool:
    """Returns whether a model of this config can only be built by the checkpoint's own code.

    A type that transformers holds is built by it, and some are here, whatever a checkpoint brings.
    """
    kind = config.get("model_type")
    is_known = kind in CONFIG_MAPPING_NAMES or kind in BUILT_HERE
    return bool(_named(config)) and not is_known


def auto_class(config: dict[str, Any]) -> Any:
    """Returns the `Auto` class that a checkpoint's own model goes by.

    Raises:
        SoonerError: the checkpoint brings code, but no model in it.
    """
    for auto in CLASSES:
        if auto.__name__ in _named(config):
            return auto
    raise SoonerError(
        f"auto_map names {', '.join(sorted(_named(config)))}, but no model; it needs one of "
        f"{', '.join(auto.__name__ for auto in CLASSES)}"
    )


def _named(config: dict[str, Any]) -> dict[str, Any]:
    named = config.get("auto_map")
    return named if isinstance(named, dict) else {}


def code_files(config: dict[str, Any]) -> str:
    """Returns the Python files that an `auto_map` names."""
    values = [value for value in _named(config).values() if isinstance(value, str)]
    return ", ".join(sorted({f"{value.rpartition('.')[0]}.py" for value in values}))


_SEEING, _READING = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


def model_type(name: str, trust_remote_code: bool = False) -> str:
    """Returns a config's `model_type`, of `sooner.models.FAMILIES` or for the generic adapter.

    Raises:
        SoonerError: no such model, a type that is not supported, or one whose code comes with the
            checkpoint and is not to be run.
    """
    config = config_dict(name)
    kind = str(config["model_type"])
    if brings_code(config):
        if not trust_remote_code:
            raise SoonerError(
                f"model '{name}' of type '{kind}' is built by code of its checkpoint "
                f"({code_files(config)}); read it, and give --trust-remote-code "
                "(trust_remote_code=True) to run it"
            )
    elif kind not in FAMILIES and (reason := _unsuited(name, kind)) is not None:
        # A type of transformers' own is meant as it is.
        hint = "" if kind in CONFIG_MAPPING_NAMES else did_you_mean(kind, FAMILIES)
        raise SoonerError(
            f"model '{name}' is of type '{kind}', which is not supported{hint}{reason}; "
            f"supported: {', '.join(sorted(FAMILIES))}"
        )
    return kind


def check_sees(name: str, kind: str, what: str) -> None:
    """Refuse a model that reads text only.

    Args:
        name, kind: of the model, and its type.
        what: is to be looked at, such as `video`.

    Raises:
        SoonerError: it does; names some types that see.
    """
    if is_text_only(kind):
        seeing = ", ".join(common for common in COMMON if common in FAMILIES)
        raise SoonerError(
            f"model '{name}' of type '{kind}' reads text only; a {what} needs a model that sees: "
            f"{seeing} and others (sooner doctor --models lists them)"
        )


def _unsuited(name: str, kind: str) -> str | None:
    """Returns why the generic adapter can't take it, found without reading weights; `None` if it
    can.
    """
    if kind not in _SEEING and kind not in _READING:
        return ""
    auto: Any = AutoModelForImageTextToText if kind in _SEEING else AutoModelForCausalLM
    source = checkpoint(name)
    try:
        with torch.device("meta"):
            config = AutoConfig.from_pretrained(
                source.folder, trust_remote_code=False, **source.options
            )
            unproved(auto.from_config(config))
    except Exception as error:
        return f" ({reason_of(error)})"
    return None


def config_dict(name: str) -> dict[str, Any]:
    """Returns a model's config as it is written, with the `model_type` that it has here.

    Raises:
        SoonerError: no such model, or none that transformers could load.
    """
    source = checkpoint(name)
    if source.gguf_file is not None:
        return _gguf_config(name, Path(source.folder, source.gguf_file).stat().st_mtime_ns)
    is_folder = Path(name).is_dir()
    looks_local = name.startswith(("/", ".", "~")) or name.count("/") > 1
    if looks_local and not is_folder:
        raise SoonerError(f"model folder '{name}' does not exist; check the path")
    is_here = is_folder or Path(source.folder).is_dir()
    with suppress(HFValidationError):  # no name of the hub, which says so itself
        is_here |= isinstance(try_to_load_from_cache(source.folder, "config.json"), str)
        if not is_here and (reason := hub_problem()) is not None:
            hint = did_you_mean(name, installed())
            raise SoonerError(f"model '{name}' is no folder here{hint}, and {reason}")
    config: dict[str, Any] = {}
    try:
        config, _ = PreTrainedConfig.get_config_dict(source.folder)
    except (OSError, ValueError, TypeError) as error:  # a TypeError where the file holds a list
        if not is_folder:
            raise SoonerError(
                f"model '{name}' is no folder here, and the hub gave no config for it; check the "
                "name, your connection, and your access to it (hf auth login)"
            ) from error
    if not isinstance(config, dict) or config.get("model_type") is None:
        raise SoonerError(
            f"model '{name}' has no readable config.json with a model_type; "
            "give a transformers checkpoint or a GGUF file"
        )
    ours = {"LlavaQwenForCausalLM", "LlavaLlamaModel", "VideoChatFlashQwenForCausalLM"}
    if ours & {*(config.get("architectures") or ())}:
        return {**config, "model_type": "llava_video"}  # published as `llava`, `llava_qwen`, ...
    return dict(config)


@lru_cache(maxsize=8)
def _gguf_config(name: str, modified: int) -> dict[str, Any]:
    """Returns the config in a GGUF file, which takes seconds to read, as of its last change."""
    source = checkpoint(name)
    try:
        return dict(AutoConfig.from_pretrained(source.folder, **source.options).to_dict())
    except (ValueError, KeyError, OSError, IndexError, struct.error) as error:
        reason = f"{reason_of(error)}; if it is cut off, download it again"
        raise SoonerError(f"GGUF file '{name}' can't be read: {reason}") from error


def is_text_only(kind: str) -> bool:
    """Returns whether models of a type read text only; unknown ones that bring their own
    code see.
    """
    if kind in FAMILIES:
        return issubclass(FAMILIES[kind], TextModel)
    return kind in _READING and kind not in _SEEING
