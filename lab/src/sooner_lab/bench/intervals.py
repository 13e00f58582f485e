"""Quotients of totals over clips or pages, and how sure they are: bootstrap, pages drawn whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

RESAMPLES = 2000
LEAST = 1e-12
"""Totals below count as this much, where one that is divided by could be 0."""


def quotient(
    rate: tuple[Sequence[float], Sequence[float]],
    base: tuple[Sequence[float], Sequence[float]],
    seed: int,
) -> dict[str, Any]:
    """One rate over another, of the same pages, with the 95 % interval of a paired bootstrap.

    Args:
        rate, base: of each page what is counted, and by what; a rate is the one's total over the
            other's.
        seed: of the pages that are drawn.

    Returns:
        `value` and `interval`, `None` where there is nothing to divide by.
    """
    many = [np.array(one, float) for one in (*rate, *base)]  # four of [pages]
    if not len(many[0]) or min(many[1].sum(), many[2].sum()) <= 0:
        return {"value": None, "interval": None}
    picks = np.random.default_rng(seed).integers(len(many[0]), size=(RESAMPLES, len(many[0])))
    spread = _quotient(*(one[picks].sum(1) for one in many))  # [resamples]
    low, high = np.percentile(spread, (2.5, 97.5))
    value = float(_quotient(*(one.sum(keepdims=True) for one in many))[0])
    return {"value": value, "interval": [float(low), float(high)]}


def _quotient(
    above: np.ndarray, below: np.ndarray, base_above: np.ndarray, base_below: np.ndarray
) -> np.ndarray:
    return above * base_below / (np.maximum(below, LEAST) * np.maximum(base_above, LEAST))
