"""How sure a mean is: bootstrap over pages."""

from __future__ import annotations

import numpy as np

RESAMPLES = 1000
SURE = 0.95
CHUNK = 500_000
"""Indices drawn at once, so that memory stays small."""


def mean(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Mean of strata's means, those without a value left out.

    Args:
        sums, counts: of a metric's values, `[..., strata]`.

    Returns:
        `[...]`; NaN where no stratum has a value.
    """
    there = counts > 0
    means = np.where(there, sums / np.maximum(counts, 1), 0.0)
    with np.errstate(invalid="ignore"):
        return means.sum(-1) / there.sum(-1)


def interval(
    sums: np.ndarray, counts: np.ndarray, generator: np.random.Generator
) -> tuple[float, float]:
    """Bounds that hold the mean with 95 %: pages are drawn again with replacement.

    Values of a page are drawn together, since they are not independent.

    Args:
        sums, counts: of a metric's values by page, `[pages, strata]`.
    """
    pages = len(sums)
    rows = max(CHUNK // pages, 1)
    means = []
    for at in range(0, RESAMPLES, rows):
        drawn = generator.integers(0, pages, (min(rows, RESAMPLES - at), pages))  # [rows, pages]
        means.append(mean(sums[drawn].sum(1), counts[drawn].sum(1)))
    edge = (1 - SURE) / 2
    low, high = np.nanquantile(np.concatenate(means), [edge, 1 - edge])
    return float(low), float(high)
