"""Tables that stand close above each other, which a layout model takes for one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from .boxes import around
from .lines import Line

APART, WIDER = 1.0, 3.0
"""Gap between two tables, in heights of a row, and in gaps that rows have there."""

LEAST_ROWS = 2
"""Rows of a table that is told from its neighbour."""


def parted(rows: Sequence[Sequence[Line]]) -> list[list[Sequence[Line]]]:
    """Rows of cells, from top to bottom, divided where they stand far apart.

    Args:
        rows: of one or more tables.

    Returns:
        Rows of each table.
    """
    boxes = [around(line.bbox for line in row) for row in rows]
    gaps = [max(lower[1] - upper[3], 0.0) for upper, lower in pairwise(boxes)]
    if not gaps:
        return [list(rows)]
    height = median(box[3] - box[1] for box in boxes)
    limit = max(APART * height, WIDER * median(gaps))
    cuts = [place for place, gap in enumerate(gaps, start=1) if gap > limit]
    found = [list(rows[start:end]) for start, end in pairwise([0, *cuts, len(rows)])]
    return found if min(map(len, found)) >= LEAST_ROWS else [list(rows)]
