"""Reading order from boxes alone, for pages of one or more columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from .lines import rows_of
from .page import Line
from .regions import PAGE_FOOTER, PAGE_HEADER, Box, Region, around, numbered

RANKS = {PAGE_HEADER: 0, PAGE_FOOTER: 2}

SLACK = 0.15
"""Part of a box's height or width that may reach over a cut: detected boxes are never exact."""


def reading_order(boxes: Sequence[Box]) -> list[int]:
    """Indices of `boxes` in reading order: columns from left to right, each from top to bottom.

    A recursive XY-cut. A gutter between columns that nothing crosses is cut first. Where something
    does cross it, such as a title or a footer, the page is cut above and below the most boxes that
    are free of it. What is left is read from top to bottom.
    """
    return _ordered(list(range(len(boxes))), boxes)


def in_reading_order(regions: Sequence[Region]) -> list[Region]:
    """Regions sorted and numbered, page headers first and page footers last.

    Those without a box stay behind the one before them.
    """
    head: list[Region] = []
    groups: list[tuple[Box, list[Region]]] = []
    for region in regions:
        if region.bbox is not None:
            groups.append((region.bbox, [region]))
        else:
            (groups[-1][1] if groups else head).append(region)
    order = sorted(
        reading_order([bbox for bbox, _ in groups]),
        key=lambda rank: RANKS.get(groups[rank][1][0].label, 1),
    )
    return numbered([*head, *(region for rank in order for region in groups[rank][1])])


def _ordered(items: list[int], boxes: Sequence[Box]) -> list[int]:
    if len(items) < 2:
        return items
    if columns := _columns(items, boxes):
        return [item for column in columns for item in _ordered(column, boxes)]
    if parts := _split(items, boxes):
        return [item for part in parts for item in _ordered(part, boxes)]
    return sorted(items, key=lambda item: (boxes[item][1], boxes[item][0]))


def _columns(items: list[int], boxes: Sequence[Box]) -> list[list[int]] | None:
    """Parts to the left and right of gutters, if these really are beside each other."""
    columns = _cut(items, boxes, 0)
    if len(columns) < 2:
        return None
    frames = [around(boxes[item] for item in column) for column in columns]
    top = max(frame[1] for frame in frames)
    bottom = min(frame[3] for frame in frames)
    return columns if top < bottom else None


def _split(items: list[int], boxes: Sequence[Box]) -> list[list[int]] | None:
    """Cuts from left to right, above and below the most boxes that then are in columns."""
    if not _any_beside(items, boxes):
        return None
    bands = _cut(items, boxes, 1)
    runs = [(a, b) for a in range(len(bands)) for b in range(a + 1, len(bands) + 1)]
    for start, end in sorted(runs, key=lambda run: -sum(map(len, bands[slice(*run)]))):
        run = list(chain(*bands[start:end]))
        if len(run) < len(items) and _columns(run, boxes):
            parts = [list(chain(*bands[:start])), run, list(chain(*bands[end:]))]
            return [part for part in parts if part]
    return None


def _any_beside(items: list[int], boxes: Sequence[Box]) -> bool:
    """Whether some box is to the right of another one."""
    rest = sorted(items, key=lambda item: boxes[item][1])
    for place, item in enumerate(rest):
        _, _, right, bottom = boxes[item]
        for other in rest[place + 1 :]:
            if boxes[other][1] >= bottom:
                break
            if boxes[other][0] >= right or boxes[other][2] <= boxes[item][0]:
                return True
    return False


def _cut(items: list[int], boxes: Sequence[Box], axis: int) -> list[list[int]]:
    """Groups along an axis (0: x, 1: y) with nothing between them."""
    groups: list[list[int]] = []
    end = 0.0
    for item in sorted(items, key=lambda item: boxes[item][axis]):
        start, stop = boxes[item][axis], boxes[item][axis + 2]
        slack = SLACK * min(stop - start, boxes[item][3] - boxes[item][1])
        if not groups or start >= end - slack:
            groups.append([])
            end = stop
        groups[-1].append(item)
        end = max(end, stop)
    return groups


MIDDLE = (0.15, 0.85)
"""Where a gutter between columns may be, in widths of what stands beside each other."""

LEAST_LINES = 3
"""Lines of a column."""

PROSE_LINES, PROSE_WORDS = 2, 3
"""Minimum of lines alone in their row, and of words in each, that make a column text, no table."""


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
