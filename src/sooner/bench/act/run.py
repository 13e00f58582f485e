"""The whole of `sooner bench act`, part by part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from .arms import contenders, loader
from .cases import cases
from .clients import clients
from .goals import goals
from .loops import loops
from .observations import read, record
from .offline import Offline
from .settings import ActSettings
from .weights import weights

Progress = Callable[[str], None]
Keep = Callable[[dict[str, Any]], None]


def run(
    settings: ActSettings, progress: Progress = print, keep: Keep | None = None
) -> dict[str, Any]:
    """Measure and return the result object.

    Args:
        keep: handed the result as far as it is, after each part, so that nothing is lost.

    Returns:
        `arms`, a row each; `cases`, `clients`, `loops`, `weights`; `goals`, `provenance`.
    """
    from ..provenance import provenance

    if settings.threads:
        torch.set_num_threads(settings.threads)
    progress("loading")
    make = loader(settings)
    arms = contenders(settings, make)
    policy = arms[0].policy
    progress("recording observations")
    if settings.data is not None:
        recorded = read(Path(settings.data))
    else:
        recorded = record(settings.envs, settings.observations, settings.seed % 1000)
    dtype = str(policy.adapter.dtype).removeprefix("torch.")
    result: dict[str, Any] = {
        "bench": "act",
        "model": "miniature:robot" if settings.model is None else settings.model,
        "settings": asdict(settings),
        "horizon": policy.horizon,
        "provenance": provenance(str(policy.adapter.device), dtype, settings.seed),
    }

    def done(**part: Any) -> None:
        result.update(part)
        result["goals"] = goals(result)
        if keep is not None:
            keep(result)

    if "offline" in settings.parts:
        done(arms=Offline(arms, recorded).run(settings, progress))
    if "cases" in settings.parts:
        done(cases=cases(arms, recorded, settings.chosen))
    if "clients" in settings.parts:
        done(clients=clients(settings, policy, recorded, progress))
    if "weights" in settings.parts:
        done(weights=weights(settings, make, recorded, progress))
    if "loops" in settings.parts and settings.data is None:
        done(loops=loops(settings, arms, progress, lambda rows: done(loops=rows)))
    return result
