"""What `sooner bench serve` is to reach, which `settings` fixed before any result."""

from __future__ import annotations

from collections.abc import Sequence

from ..goals import worst
from ..run import Data
from .settings import (
    AT_FEW,
    CONTINUOUS,
    DRAFTS,
    FEW,
    LOAD,
    NEVER_SLOWER,
    OURS,
    PLAIN,
    SEQUENTIAL,
    TAIL,
)


def goals(result: Data) -> list[Data]:
    """Return a row for each goal: the worst point that was reached, and those that missed it."""
    rows = [
        row for row in result.get("clients") or [] if (row.get("over_plain") or {}).get("value")
    ]
    alone = [
        (f"{row['clients']} clients", 1 / row["over_plain"]["value"])
        for row in rows
        if row["arm"] == SEQUENTIAL
    ]
    few = [row for row in rows if row["clients"] <= FEW]
    return [
        *worst(f"{DRAFTS} over {PLAIN}, 1 to {FEW} clients, ×", AT_FEW, _over(few, (DRAFTS,))),
        *worst(
            f"each of our methods over {PLAIN}, at every number of clients, ×",
            NEVER_SLOWER,
            _over(rows, OURS),
        ),
        *worst(f"{PLAIN} over {SEQUENTIAL} at saturation, ×", CONTINUOUS, alone),
        *_tail(result, is_paced=False),
        *_tail(result, is_paced=True),
    ]


def _over(rows: Sequence[Data], arms: Sequence[str]) -> list[tuple[str, float]]:
    return [
        (f"{row['arm']}, {row['clients']} clients", row["over_plain"]["value"])
        for row in rows
        if row["arm"] in arms
    ]


def _tail(result: Data, is_paced: bool) -> list[Data]:
    """Judge servers as they are, or those with a limit to the time of a token."""
    rows = [row for row in result.get("poisson") or [] if row.get("tail")]
    how = ", by `--time-per-token-ms`" if is_paced else ""
    name = f"p99 of the time per token at {LOAD:.0%} load over that at one client, ×{how}"
    points = [(row["arm"], row["tail"]) for row in rows if bool(row.get("pace_ms")) == is_paced]
    return worst(name, TAIL, points, is_upper=True)
