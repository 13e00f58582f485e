"""The whole of `sooner bench arm`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from sooner.errors import SoonerError
from sooner.methods.threads import torch_threads

from ...worlds.arm.simulator import require_installed
from .acceptance import acceptance
from .judging import gate, goals, regime
from .loops import loops
from .settings import SEED, ArmSettings

Keep = Callable[[dict[str, Any]], None]


def run(
    settings: ArmSettings,
    progress: Callable[[str], None] = print,
    keep: Keep = lambda result: None,
) -> dict[str, Any]:
    """Measure.

    Args:
        keep: handed the result as far as it is, after each part.

    Returns:
        `episodes` of `loops`, `acceptance`; `gate`, `regime` and `goals` as far as these tell;
        `settings`, `provenance`.

    Raises:
        SoonerError: robosuite is not installed, or a checkpoint is missing.
    """
    from sooner.provenance import provenance

    require_installed()
    missing = [
        one
        for one in ("target/checkpoint", *(f"head/{name}" for name in settings.heads))
        if not (settings.models / one / "config.json").is_file()
    ]
    if missing:
        raise SoonerError(
            f"'{settings.models}' has no {missing[0]}; train it: sooner train miniature arm -o DIR"
        )
    told = {**asdict(settings), "models": settings.models.name}
    result: dict[str, Any] = {"bench": "arm", "model": "arm", "settings": told}
    if "acceptance" in settings.parts:
        with torch_threads(1):
            result["acceptance"] = acceptance(settings, progress)
        result["regime"] = regime(result["acceptance"]["arms"], settings.heads[-1])
        result["provenance"] = provenance("cpu", "float32", SEED)
        keep(result)
    if {"gate", "loops"} & set(settings.parts):
        result["episodes"] = loops(settings, progress)
        if "gate" in settings.parts:
            result["gate"] = gate(result["episodes"])
        if "loops" in settings.parts:
            result["goals"] = goals(result["episodes"])
    result["provenance"] = provenance("cpu", "float32", SEED)
    return result
