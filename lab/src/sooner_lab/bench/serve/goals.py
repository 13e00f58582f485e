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
    NEVER_SLOWER,
    OURS,
    PLAIN,
    SEQUENTIAL,
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
    ]


def _over(rows: Sequence[Data], arms: Sequence[str]) -> list[tuple[str, float]]:
    return [
        (f"{row['arm']}, {row['clients']} clients", row["over_plain"]["value"])
        for row in rows
        if row["arm"] in arms
    ]
