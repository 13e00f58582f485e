"""Checkpoints that bring their own Python files, which are run for those alone who ask for it."""

from __future__ import annotations

import logging
from typing import Any

from transformers import AutoModel, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from ..errors import SoonerError
from ..models.openvla import OpenVLA

logger = logging.getLogger("sooner")

CLASSES: dict[str, Any] = {
    "AutoModelForImageTextToText": AutoModelForImageTextToText,
    "AutoModelForCausalLM": AutoModelForCausalLM,
    "AutoModel": AutoModel,
}
"""By which a config's `auto_map` may name a model, the best first."""


def brings_code(config: dict[str, Any]) -> bool:
    """Whether a model of this config can only be built by the checkpoint's own code.

    A type that transformers holds is built by transformers, and OpenVLA here, whatever the
    checkpoint brings.
    """
    kind = config.get("model_type")
    held = kind in CONFIG_MAPPING_NAMES or kind in OpenVLA.model_types
    return bool(_named(config)) and not held


def auto_class(config: dict[str, Any]) -> Any:
    """The `Auto` class that a checkpoint's own model goes by.

    Raises:
        SoonerError: the checkpoint brings code, but no model in it.
    """
    for name, auto in CLASSES.items():
        if name in _named(config):
            return auto
    raise SoonerError(
        f"auto_map names {', '.join(sorted(_named(config)))}, but no model; it needs one of "
        f"{', '.join(CLASSES)}"
    )


def check_trust(name: str, config: dict[str, Any], trust: bool) -> None:
    """Refuse a checkpoint's own code that nobody asked to be run, and say so where it is run.

    Raises:
        SoonerError: `trust` is off.
    """
    if not trust:
        raise SoonerError(
            f"model '{name}' of type '{config.get('model_type')}' is built by code of its "
            f"checkpoint ({_files(config)}); read it, and give --trust-remote-code "
            "(trust_remote_code=True) to run it"
        )
    logger.warning("running code of the checkpoint '%s': %s", name, _files(config))


def _named(config: dict[str, Any]) -> dict[str, Any]:
    named = config.get("auto_map")
    return named if isinstance(named, dict) else {}


def _files(config: dict[str, Any]) -> str:
    """The Python files that an `auto_map` names."""
    values = [value for value in _named(config).values() if isinstance(value, str)]
    return ", ".join(sorted({f"{value.rpartition('.')[0]}.py" for value in values}))
