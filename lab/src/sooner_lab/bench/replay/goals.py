"""What `sooner bench replay` is to reach, which `settings` fixed before any result."""

from __future__ import annotations

from collections.abc import Sequence

from ..goals import worst
from ..run import Data
from .settings import NEVER_SLOWER, OF_THEORY, PARALLEL_FROM, SEQUENTIAL, THEORY_FROM

AUTO = "speculative-auto"


def goals(points: Sequence[Data]) -> list[Data]:
    """Return a row for each goal: the worst point that was reached, and those that missed it."""
    measured = [
        (point, {arm["method"]: arm for arm in point["arms"] if "decode_speedup" in arm})
        for point in points
    ]
    single = [(point, arms) for point, arms in measured if point["rows"] == 1]
    plain = [
        (place(point), arms[AUTO]["decode_speedup"]) for point, arms in measured if AUTO in arms
    ]
    theory = [
        (place(point), arms[AUTO]["of_theory"])
        for point, arms in single
        if AUTO in arms and point["pattern"] == "independent" and point["acceptance"] >= THEORY_FROM
    ]
    parallel = [
        (place(point), arms["parallel"]["decode_speedup"] / fastest(arms))
        for point, arms in single
        if "parallel" in arms and fastest(arms) and point["acceptance"] >= PARALLEL_FROM
    ]
    return [
        *worst(f"{AUTO} over plain, every acceptance and number of rows, ×", NEVER_SLOWER, plain),
        *worst(
            f"{AUTO} over its theory, one row, acceptance {THEORY_FROM:g} and more",
            OF_THEORY,
            theory,
        ),
        *worst(
            f"parallel over the fastest sequential arm, one row, acceptance {PARALLEL_FROM:g} and "
            "more, ×",
            1.0,
            parallel,
        ),
    ]


def fastest(arms: Data) -> float:
    """Return the speed-up of the fastest arm whose draft and target take turns; 0 without one."""
    return max((arms[name]["decode_speedup"] for name in SEQUENTIAL if name in arms), default=0.0)


def place(point: Data) -> str:
    """Return a point in words."""
    return f"rows {point['rows']}, a = {point['acceptance']:g}, {point['pattern']}"
