"""Measures arms of trained drafters as `bench caption` does, and counts acceptance by depth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..caption import run as run_caption
from ..caption_settings import BenchSettings
from .arms import DEPTH, GOALS, TRAINED

Figures = dict[str, Any]


def run(settings: BenchSettings, progress: Callable[[str], None] = print) -> Figures:
    """Measure and return the result: `bench caption`'s `arms` with `depths`, and `goals`."""
    result = run_caption(settings, progress)
    for arm in result["arms"]:
        if arm["method"] in TRAINED:
            arm["depths"] = depths(arm["acceptance_histogram"])
            arm["baseline"] = TRAINED[arm["method"]].baseline
    return {**result, "bench": "drafters", "goals": judged(result["arms"])}


def depths(histogram: Mapping[int, int], depth: int = DEPTH) -> list[float]:
    """Share of steps in which at least 1, 2, ... `depth` draft tokens were accepted.

    Args:
        histogram: accepted draft tokens of a step -> steps; those near an answer's end, which
            could draft less, are counted.
    """
    steps = sum(histogram.values())
    return [
        sum(times for count, times in histogram.items() if count >= level) / steps if steps else 0.0
        for level in range(1, depth + 1)
    ]


def judged(arms: Sequence[Figures]) -> list[Figures]:
    """Each goal whose arms were measured: `goal`, `wanted`, `reached`, `met`."""
    figures = {arm["method"]: arm for arm in arms}
    found = []
    for goal in GOALS:
        reached = figures.get(goal.arm, {}).get(goal.figure)
        if goal.over_baseline and reached is not None:
            below = figures.get(TRAINED[goal.arm].baseline or "", {}).get(goal.figure)
            reached = reached / below if below else None
        if reached is not None:
            met = reached >= goal.wanted
            found.append({"goal": goal.name, "wanted": goal.wanted, "reached": reached, "met": met})
    return found
