"""How far relaxed actions are from the exact ones, and how much of an exact one repeats itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .arms import ActContender
from .observations import Recorded
from .settings import ActSettings

Progress = Callable[[str], None]


def distance(
    settings: ActSettings,
    contenders: list[ActContender],
    recorded: list[Recorded],
    progress: Progress,
) -> dict[str, Any]:
    """Actions of every relaxed arm beside plain's, on more observations than are timed.

    Args:
        contenders: plain first; exact ones say what it says and are left out.

    Returns:
        `observations`, their number; `names` of the dimensions; `arms`, a row each with `same`, the
        share of equal numbers, and `mean`, `max` (in the action's own units), `mean_bins`,
        `max_bins` of each dimension; `steps`, how far an action's steps are from the one before:
        `numbers` compared, and the shares of them that are the `same` and at most 1 bin off
        (`within_1`), or the tolerance of the tables that show one (`within_chosen`). `None` where
        actions have one step.
    """
    exact = _ids(contenders[0], recorded, settings.batch, progress)  # [observations, steps, dims]
    policy = contenders[0].policy
    stats = policy.statistics[policy.key_of(recorded[0].seen)]
    width = stats.bin_width(policy.tokens)  # [dims]
    rows = []
    for one in contenders:
        if one.method != "relaxed":
            continue
        off = np.abs(_ids(one, recorded, settings.batch, progress) - exact)
        flat = off.reshape(-1, off.shape[-1])  # [observations * steps, dims]
        rows.append(
            {
                "method": one.name,
                "tolerance": one.tolerance,
                "same": float((flat == 0).mean()),
                "mean_bins": flat.mean(0).tolist(),
                "max_bins": flat.max(0).tolist(),
                "mean": (flat.mean(0) * width).tolist(),
                "max": (flat.max(0) * width).tolist(),
            }
        )
    return {
        "observations": len(recorded),
        "names": list(stats.names) if stats.names else None,
        "arms": rows,
        "steps": steps(exact, settings.chosen),
    }


def steps(ids: np.ndarray, chosen: int) -> dict[str, Any] | None:
    """How near each step of an action is to the one before it.

    Args:
        ids: action tokens, `[actions, steps, dims]`; neighbouring ids are neighbouring bins.
        chosen: a tolerance in bins.
    """
    if ids.shape[1] < 2:
        return None
    off = np.abs(np.diff(ids.astype(np.int64), axis=1))
    shares = {"same": 0, "within_1": 1, "within_chosen": chosen}
    return {
        "numbers": int(off.size),
        **{name: float((off <= bins).mean()) for name, bins in shares.items()},
    }


def _ids(one: ActContender, recorded: list[Recorded], batch: int, progress: Progress) -> np.ndarray:
    """Action tokens of every observation, `[observations, steps, dims]`."""
    found: list[np.ndarray] = []
    for start in range(0, len(recorded), batch):
        progress(f"distance, {one.name}: {start} of {len(recorded)}")
        part = [each.seen for each in recorded[start : start + batch]]
        found += [np.atleast_2d(action.ids).astype(np.int64) for action in one.act(part)]
    return np.stack(found)
