"""The goals, which `settings` fixed before any result, beside what a run reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .settings import NEVER_SLOWER, OF_THEORY, PARALLEL_FROM, SEQUENTIAL, THEORY_FROM

Figures = dict[str, Any]
AUTO = "speculative-auto"


def goals(points: Sequence[Figures]) -> list[Figures]:
    """One entry a goal: `goal`, `wanted`, the worst that was `reached` and `where`, `met`, and
    every point that missed it (`missed`); a goal without a point is left out."""
    plain = [
        (point, arms[AUTO]["decode_speedup"]) for point, arms in _measured(points) if AUTO in arms
    ]
    single = [(point, arms) for point, arms in _measured(points) if point["rows"] == 1]
    theory = [
        (point, arms[AUTO]["of_theory"])
        for point, arms in single
        if AUTO in arms and point["pattern"] == "independent" and point["acceptance"] >= THEORY_FROM
    ]
    beside = [
        (point, arms["parallel"]["decode_speedup"] / fastest(arms))
        for point, arms in single
        if "parallel" in arms and fastest(arms) and point["acceptance"] >= PARALLEL_FROM
    ]
    found = [
        _goal(f"{AUTO} over plain, every acceptance and number of rows, ×", NEVER_SLOWER, plain),
        _goal(f"{AUTO} over its theory, one row, acceptance {THEORY_FROM:g} and more", OF_THEORY,
              theory),
        _goal(f"parallel over the fastest sequential arm, one row, acceptance {PARALLEL_FROM:g} "
              "and more, ×", 1.0, beside),
    ]  # fmt: skip
    return [one for one in found if one is not None]


def fastest(arms: Figures) -> float:
    """Speed-up of the fastest arm whose draft and target take turns; 0 without one."""
    return max((arms[name]["decode_speedup"] for name in SEQUENTIAL if name in arms), default=0.0)


def _measured(points: Sequence[Figures]) -> list[tuple[Figures, Figures]]:
    """Points with their arms by name, those without a speed left out."""
    return [
        (point, {arm["method"]: arm for arm in point["arms"] if "decode_speedup" in arm})
        for point in points
    ]


def _goal(what: str, wanted: float, reached: Sequence[tuple[Figures, float]]) -> Figures | None:
    if not reached:
        return None
    point, worst = min(reached, key=lambda pair: pair[1])
    return {
        "goal": what,
        "wanted": wanted,
        "reached": worst,
        "where": place(point),
        "met": worst >= wanted,
        "points": len(reached),
        "missed": [[place(one), value] for one, value in reached if value < wanted],
    }


def place(point: Figures) -> str:
    """A point in words."""
    return f"rows {point['rows']}, a = {point['acceptance']:g}, {point['pattern']}"
