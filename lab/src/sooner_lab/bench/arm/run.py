"""The whole of `sooner bench arm`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from sooner.errors import SoonerError
from sooner.methods.threads import torch_threads

from ...worlds.arm.simulator import require_installed
from .acceptance import acceptance
from .judging import gate, goals, head_like_the_paper_s, regime
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
        `acceptance`; `head`, which acts, and `episodes` of `loops`; `gate`, `regime` and `goals`
        as far as these tell; `settings`, `provenance`.

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
            f"'{settings.models}' has no {missing[0]}; train it: sooner train miniature arm --out "
            "DIR"
        )
    told = {**asdict(settings), "models": settings.models.name}
    result: dict[str, Any] = {"bench": "arm", "model": "arm", "settings": told}
    result["head"] = settings.heads[-1]
    if "acceptance" in settings.parts:
        with torch_threads(1):
            result["acceptance"] = acceptance(settings, progress)
        arms = result["acceptance"]["arms"]
        result["head"] = head_like_the_paper_s(arms, settings.heads)
        result["regime"] = regime(arms, result["head"])
        result["provenance"] = provenance("cpu", "float32", SEED)
        keep(result)
    if {"gate", "loops"} & set(settings.parts):
        result["episodes"] = loops(settings, result["head"], progress)
        if "gate" in settings.parts:
            result["gate"] = gate(result["episodes"])
        if "loops" in settings.parts:
            result["goals"] = goals(result["episodes"])
    result["provenance"] = provenance("cpu", "float32", SEED)
    return result
