"""The whole of `sooner bench act`, part by part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from sooner.errors import unknown
from sooner.robots import names

from ...robots import LIBERO, METAWORLD, TABLE
from ...robots.metaworld import require_installed
from ..run import Keep, Progress, Recorder
from .arms import contenders, loader
from .goals import goals
from .loops import loops
from .observations import Recorded, read, record
from .offline import Offline
from .settings import ActSettings


def run(
    settings: ActSettings, progress: Progress = print, keep: Keep | None = None
) -> dict[str, Any]:
    """Measure and return the result object.

    Args:
        keep: handed the result as far as it is, after each part, so that nothing is lost.

    Returns:
        `arms`, a row each; `loops`; `goals`, `provenance`.

    Raises:
        SoonerError: at once, if a part needs what is not installed; names the extra.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    if settings.data is None:
        for name in settings.envs:
            _require_simulator(name)
    progress("recording observations")
    recorded = _observations(settings)
    progress("loading")
    make = loader(settings)
    arms = contenders(settings, make)
    policy = arms[0].policy
    model = "miniature:robot" if settings.model is None else settings.model
    result = Recorder("act", settings, goals, keep, model=model, horizon=policy.horizon)
    result.origin(policy.adapter.device, policy.adapter.dtype, settings.seed)
    if "offline" in settings.parts:
        result.add(arms=Offline(arms, recorded).run(settings, progress))
    if "loops" in settings.parts and settings.data is None:
        result.add(loops=loops(settings, arms, progress, lambda rows: result.add(loops=rows)))
    return result.result


def _observations(settings: ActSettings) -> list[Recorded]:
    """Return the observations that are timed."""
    if settings.data is not None:
        return read(Path(settings.data))
    return record(settings.envs, settings.observations, settings.seed % 1000)


def _require_simulator(name: str) -> None:
    if name in METAWORLD:
        require_installed(name)
    elif name != TABLE and not name.startswith(LIBERO):
        raise unknown("environment", name, names())
