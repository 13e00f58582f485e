"""The whole of `sooner bench act`, part by part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from sooner.errors import SoonerError, unknown
from sooner.robots.registry import TABLE, names

from ...robots import LIBERO, METAWORLD
from ...robots.metaworld import require_installed
from .arms import contenders, loader
from .cases import cases
from .clients import clients
from .distance import distance
from .goals import goals
from .loops import loops
from .observations import Recorded, read, record
from .offline import Offline
from .settings import ActSettings
from .trees import trees
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
        `arms`, a row each; `trees`, `distance`, `cases`, `clients`, `weights`, `loops`; `goals`,
        `provenance`.

    Raises:
        SoonerError: at once, if a part needs what is not installed; names the extra.
    """
    from sooner.provenance import provenance

    if settings.threads:
        torch.set_num_threads(settings.threads)
    require(settings)
    progress("recording observations")
    recorded, more = _observations(settings)
    progress("loading")
    make = loader(settings)
    arms = contenders(settings, make)
    policy = arms[0].policy
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
    if "trees" in settings.parts:
        done(trees=trees(settings, make, recorded, progress))
    if "distance" in settings.parts:
        done(distance=distance(settings, arms, more, progress))
    if "cases" in settings.parts:
        done(cases=cases(arms, recorded, settings.chosen))
    if "clients" in settings.parts:
        done(clients=clients(settings, policy, recorded, progress))
    if "weights" in settings.parts:
        done(weights=weights(settings, make, recorded, progress))
    if "loops" in settings.parts and settings.data is None:
        done(loops=loops(settings, arms, progress, lambda rows: done(loops=rows)))
    return result


def require(settings: ActSettings) -> None:
    """Refuse settings whose packages are not here, before any work.

    Raises:
        SoonerError: names what is missing, and the extra that brings it.
    """
    if settings.data is None:
        for name in settings.envs:
            _require_simulator(name)
    missing = [name for name in ("httpx", "fastapi", "uvicorn") if find_spec(name) is None]
    if "clients" in settings.parts and missing:
        raise SoonerError(
            f"the clients part needs {', '.join(missing)}; pip install 'sooner[dev]', or leave it "
            "out of --parts"
        )


def _require_simulator(name: str) -> None:
    if name in METAWORLD:
        require_installed(name)
    elif name != TABLE and not name.startswith(LIBERO):
        raise unknown("environment", name, names())


def _observations(settings: ActSettings) -> tuple[list[Recorded], list[Recorded]]:
    """Those that are timed, and those (the timed ones among them) whose distances are measured."""
    if settings.data is not None:
        found = read(Path(settings.data))
        return found, found
    count = settings.observations
    if "distance" in settings.parts:
        count = max(count, settings.distances)
    more = record(settings.envs, count, settings.seed % 1000)
    timed = [
        one
        for env in settings.envs
        for one in [each for each in more if each.env == env][: settings.observations]
    ]
    return timed, more
