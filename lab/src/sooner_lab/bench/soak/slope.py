"""How much memory grows, however it jumps: Theil and Sen's slope of medians, with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from math import sqrt
from statistics import median

Point = tuple[float, float]


def medians(points: Sequence[Point], windows: int) -> list[Point]:
    """The medians of equal parts of the time; parts without a point are left out."""
    if not points:
        return []
    begin, end = points[0][0], points[-1][0]
    width = (end - begin) / windows or 1.0
    edges = [begin + number * width for number in range(windows)] + [float("inf")]
    parts = [[point for point in points if low <= point[0] < high] for low, high in pairwise(edges)]
    return [(median(x for x, _ in part), median(y for _, y in part)) for part in parts if part]


def slope(points: Sequence[Point]) -> tuple[float, float, float]:
    """Theil and Sen's slope: the median of the slopes of all pairs; and its 95 % interval.

    P. K. Sen, Estimates of the regression coefficient based on Kendall's tau (1968), section 6.

    Returns:
        The slope, and the ends of the interval; infinite with fewer than three points.
    """
    slopes = sorted(
        (second[1] - first[1]) / (second[0] - first[0])
        for first, second in combinations(points, 2)
        if second[0] != first[0]
    )
    count = len(points)
    if count < 3 or not slopes:
        return 0.0, float("-inf"), float("inf")
    reach = 1.96 * sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low = int((len(slopes) - reach) / 2)
    high = int((len(slopes) + reach) / 2) + 1
    return (
        median(slopes),
        slopes[low] if low >= 0 else float("-inf"),
        slopes[high] if high < len(slopes) else float("inf"),
    )
