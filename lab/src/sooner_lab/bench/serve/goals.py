"""The goals, which `settings` fixed before any result, beside what a run reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .settings import (
    AT_FEW,
    CONTINUOUS,
    COST,
    DRAFTS,
    FEW,
    LOAD,
    NEVER_SLOWER,
    ONE_BY_ONE,
    OURS,
    PLAIN,
    SECOND,
    TAIL,
)

Figures = dict[str, Any]
Reached = list[tuple[str, float]]


def goals(result: Figures) -> list[Figures]:
    """One entry a goal: `goal`, `wanted`, `at_most`, the worst that was `reached` and `where`,
    `points`, `missed`; a goal without a point is left out."""
    rows = result.get("clients") or []
    few = [one for one in _over(rows, (DRAFTS,)) if one[2] <= FEW]
    found = [
        _goal(f"{DRAFTS} over {PLAIN}, 1 to {FEW} clients, ×", AT_FEW, _named(few)),
        _goal(
            f"each of our methods over {PLAIN}, at every number of clients, ×",
            NEVER_SLOWER,
            _named(_over(rows, OURS)),
        ),
        _goal(
            f"{PLAIN} over {ONE_BY_ONE} at saturation, ×",
            CONTINUOUS,
            [
                (f"{row['clients']} clients", 1 / row["over_plain"]["value"])
                for row in rows
                if row["arm"] == ONE_BY_ONE and _value(row)
            ],
        ),
        _tail(result, ""),
        _tail(result, ", by `--time-per-token-ms`"),
        _goal(
            "first token of a second question on a clip, over the first's",
            SECOND,
            [
                (row["arm"], row["ratio"]["value"])
                for row in result.get("second") or []
                if row.get("ratio")
            ],
            at_most=True,
        ),
        _goal(
            "what the server adds to `sooner.generate`, one client",
            COST,
            [
                (row["arm"], row["cost"]["value"])
                for row in result.get("direct") or []
                if row.get("cost")
            ],
            at_most=True,
        ),
    ]
    return [one for one in found if one is not None]


def _tail(result: Figures, how: str) -> Figures | None:
    """Of servers as they are, or of those that are told how long a token may take."""
    rows = result.get("poisson") or []
    mine = [row for row in rows if row.get("tail") and bool(row.get("pace_ms")) == bool(how)]
    return _goal(
        f"p99 of the time per token at {LOAD:.0%} load over that at one client, ×{how}",
        TAIL,
        [(row["arm"], row["tail"]) for row in mine],
        at_most=True,
    )


def _over(rows: Sequence[Figures], arms: Sequence[str]) -> list[tuple[str, float, int]]:
    return [
        (row["arm"], row["over_plain"]["value"], row["clients"])
        for row in rows
        if row["arm"] in arms and _value(row)
    ]


def _value(row: Figures) -> bool:
    """Whether a row has a speed; where parity is red it has none."""
    return bool((row.get("over_plain") or {}).get("value"))


def _named(found: Sequence[tuple[str, float, int]]) -> Reached:
    return [(f"{arm}, {clients} clients", value) for arm, value, clients in found]


def _goal(what: str, wanted: float, reached: Reached, at_most: bool = False) -> Figures | None:
    if not reached:
        return None
    worst = (max if at_most else min)(reached, key=lambda pair: pair[1])
    missed = [one for one in reached if (one[1] > wanted if at_most else one[1] < wanted)]
    return {
        "goal": what,
        "wanted": wanted,
        "at_most": at_most,
        "reached": worst[1],
        "where": worst[0],
        "met": not missed,
        "points": len(reached),
        "missed": [list(one) for one in missed],
    }
