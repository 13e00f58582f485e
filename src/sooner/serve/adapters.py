"""LoRA adapters of a model, and the names of bundled miniatures.

Adapters in PEFT's format are merged into the weights when the model is loaded. Nothing here needs
torch.
"""

from __future__ import annotations

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from .. import miniatures
from ..checks import check_choice
from ..errors import SoonerError, reason_of

CONFIG = "adapter_config.json"

TYPO = 0.8
"""Likeness of a name to `MINIATURE` from which on it is meant, though misspelt."""
MINIATURE, MINIATURES = "miniature", ("video", "document")
"""`miniature` is the first of these; `miniature:document` names one."""


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


def miniature_of(name: str) -> str | None:
    """Returns the bundled miniature that `miniature` or `miniature:NAME` means; `None` for other
    models.

    Raises:
        SoonerError: one that does not chat.
    """
    word, colon, which = name.partition(":")
    if word != MINIATURE:
        is_like = "/" not in name and get_close_matches(word, [MINIATURE], cutoff=TYPO)
        if is_like and not Path(name).exists():
            raise SoonerError(f"there is no model '{name}'; did you mean '{MINIATURE}'?")
        return None
    which = which if colon else MINIATURES[0]
    if which in miniatures.names() and which not in MINIATURES:
        raise SoonerError(
            f"the '{which}' miniature does not chat; serve {' or '.join(MINIATURES)} (policies: "
            "sooner act serve)"
        )
    check_choice("miniature", which, MINIATURES)
    return which
