"""Text in columns told from tables, whose cells stand beside each other just so."""

from __future__ import annotations

from collections.abc import Sequence

from .boxes import around
from .lines import Line, rows_of

MIDDLE = (0.15, 0.85)
"""Where a gutter between columns may be, in widths of what stands beside each other."""

LEAST_LINES = 3
"""Lines of a column."""

PROSE_LINES, PROSE_WORDS = 2, 3
"""Lines of a column that are text, alone in their row, and words of each; tables have none."""


def columns_of(lines: Sequence[Line], width: float) -> list[list[Line]]:
    """Groups of lines that belong together: columns, and what goes over several of them.

    Two columns are told apart at the widest gutter that the fewest lines cross; each of them may
    be two columns again.

    Args:
        lines: in any order.
        width: of the page, in pixels.

    Returns:
        Groups in reading order.
    """
    if not lines:
        return []
    gutter = _gutter(lines)
    if gutter is None:
        return [list(lines)]
    groups: list[list[Line]] = [[]]
    for band, crosses in _bands(lines, gutter):
        sides = [] if crosses else _sides(band, gutter, width)
        if sides:
            groups += [*(part for side in sides for part in columns_of(side, width)), []]
        else:
            groups[-1] += band
    return [group for group in groups if group]


def _bands(lines: Sequence[Line], gutter: float) -> list[tuple[list[Line], bool]]:
    """Lines from top to bottom that all cross the gutter, or all do not."""
    bands: list[tuple[list[Line], bool]] = []
    for line in sorted(lines, key=lambda line: line.bbox[1]):
        crosses = line.bbox[0] < gutter < line.bbox[2]
        if not bands or bands[-1][1] != crosses:
            bands.append(([], crosses))
        bands[-1][0].append(line)
    return bands


def _gutter(lines: Sequence[Line]) -> float | None:
    """Where the fewest lines cross, in the widest gap; `None` if no line ends to the left of one
    that begins to the right."""
    left, _, right, _ = around(line.bbox for line in lines)
    low, high = (left + share * (right - left) for share in MIDDLE)
    edges = sorted({edge for line in lines for edge in line.bbox[::2] if low <= edge <= high})
    places = [(b - a, (a + b) / 2) for a, b in zip([low, *edges], [*edges, high], strict=True)]
    best: tuple[int, float, float] | None = None
    for gap, place in places:
        if gap > 0 and _has_sides(lines, place):
            crossing = sum(line.bbox[0] < place < line.bbox[2] for line in lines)
            best = min(best or (crossing, -gap, place), (crossing, -gap, place))
    return None if best is None else best[2]


def _has_sides(lines: Sequence[Line], place: float) -> bool:
    left = sum(line.bbox[2] <= place for line in lines)
    return min(left, sum(line.bbox[0] >= place for line in lines)) >= LEAST_LINES


def _sides(band: list[Line], gutter: float, width: float) -> list[list[Line]]:
    """Both columns of a band, if it is two columns of text."""
    sides = [
        [line for line in band if line.bbox[2] <= gutter],
        [line for line in band if line.bbox[0] >= gutter],
    ]
    return sides if all(_is_text(side, width) for side in sides) else []


def _is_text(lines: Sequence[Line], width: float) -> bool:
    """Whether lines are a column of text, or several."""
    if len(lines) < LEAST_LINES:
        return False
    rows = rows_of(lines)
    prose = sum(len(row) == 1 and len(row[0].text.split()) >= PROSE_WORDS for row in rows)
    return prose >= PROSE_LINES or len(columns_of(lines, width)) > 1
