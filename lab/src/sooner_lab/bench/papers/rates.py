"""Rates over pages, with their intervals, from the readings of the study of documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..run import RESAMPLES, quotient

Figures = dict[str, Any]


def rows_of(readings: Iterable[Figures], **values: Any) -> list[Figures]:
    """The readings that have these values."""
    return [
        reading
        for reading in readings
        if all(reading[name] == value for name, value in values.items())
    ]


def aal(rows: Sequence[Figures], seed: int) -> Figures:
    """The accepted draft tokens of a verification step (eq. 14 of HSD), over all pages.

    The bootstrap draws whole pages.
    """
    if not rows:
        return {"value": None, "interval": None}
    accepted = np.array([row["accepted"] for row in rows], float)
    steps = np.array([row["steps"] for row in rows], float)
    picks = np.random.default_rng(seed).integers(len(rows), size=(RESAMPLES, len(rows)))
    spread = accepted[picks].sum(1) / np.maximum(steps[picks].sum(1), 1)
    low, high = np.percentile(spread, (2.5, 97.5))
    value = float(accepted.sum() / max(steps.sum(), 1))
    return {"value": value, "interval": [float(low), float(high)]}


def speedup(
    rows: Sequence[Figures], base: Sequence[Figures], clock: str, seed: int, drafter: bool = False
) -> Figures:
    """The quotient of tokens a second of two arms over the same pages, by one clock.

    Args:
        rows: of the arm.
        base: of the arm that it is compared with.
        clock: of the readings' names, of both sides: clocks are never mixed.
        drafter: add the drafter's measured seconds, for clocks that do not hold them.
        seed: of the bootstrap.
    """
    base_rows = {row["page"]: row for row in base}
    pairs = [(row, base_rows[row["page"]]) for row in rows if row["page"] in base_rows]

    def seconds(row: Figures) -> float:
        return float(row[clock] + (row["draft_seconds"] if drafter else 0.0))

    return quotient(
        ([row["tokens"] for row, _ in pairs], [seconds(row) for row, _ in pairs]),
        ([other["tokens"] for _, other in pairs], [seconds(other) for _, other in pairs]),
        seed,
    )
