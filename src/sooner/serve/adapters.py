"""LoRA adapters in PEFT's format: merged into a model's weights when it is loaded, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import SoonerError, reason_of

CONFIG = "adapter_config.json"


def base_of(name: str) -> str | None:
    """Returns the model that an adapter is for; `None` if `name` is no adapter but a model, or a
    hub id.

    Args:
        name: a folder.

    Raises:
        SoonerError: an adapter's config that can't be read, or names no model.
    """
    config = _config(name)
    if config is None or (Path(name) / "config.json").is_file():
        return None
    base = config.get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise SoonerError(f"adapter '{name}' names no model; give the model, and --adapter")
    return base


def merged(model: Any, name: str) -> Any:
    """Returns a model with a LoRA adapter in its weights.

    Args:
        name: folder or hub id of the adapter.

    Raises:
        SoonerError: no LoRA, one that does not fit the model, or PEFT is not installed.
    """
    try:
        from peft import PeftModel
    except ImportError:
        raise SoonerError(
            f"adapter '{name}' needs peft, which is not installed; pip install peft"
        ) from None
    config = _config(name)
    if config is not None and str(config.get("peft_type", "")).upper() != "LORA":
        raise SoonerError(
            f"adapter '{name}' is of type '{config.get('peft_type')}'; only LoRA can be merged"
        )
    try:
        return PeftModel.from_pretrained(model, name).merge_and_unload(safe_merge=True).eval()
    except Exception as error:
        # PEFT meets other weights with errors of many kinds, and NaN with a ValueError.
        text = " ".join(str(error).split())[:200]
        raise SoonerError(f"adapter '{name}' can't be merged: {text}") from error


def refuse_unmerged(model: Any, name: str) -> None:
    """Refuse a model whose folder had an adapter beside it, which transformers loads as it is.

    Raises:
        SoonerError: it has one; says what to do.
    """
    if getattr(model, "_hf_peft_config_loaded", False):
        raise SoonerError(
            f"'{name}' has an adapter beside its weights, which is not merged; name the model "
            "without it and the adapter by --adapter"
        )


def _config(name: str) -> dict[str, Any] | None:
    path = Path(name).expanduser() / CONFIG
    if not path.is_file():
        return None
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError("no object")
        return config
    except (OSError, ValueError) as error:
        raise SoonerError(f"'{path}' can't be read: {reason_of(error)}") from error
