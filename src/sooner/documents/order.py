"""Reading order from boxes alone, for pages of one or more columns."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations, pairwise

from .languages import is_right_to_left
from .page import Line
from .regions import PAGE_FOOTER, PAGE_HEADER, Box, Region, around, numbered

RANKS = {PAGE_HEADER: 0, PAGE_FOOTER: 2}

SLACK = 0.15
"""Part of a box's height or width that may reach over a cut: detected boxes are never exact."""


FEW = 0.1
"""Share of pairs that a file may list the other way round where its order is that of a cut."""


def reading_order(
    boxes: Sequence[Box], ranks: Sequence[float] = (), from_right: bool = False
) -> list[int]:
    """Returns indices of `boxes` in reading order: columns from left to right, each from top to
    bottom.

    A recursive XY-cut. A gutter between columns that nothing crosses is cut first, unless the
    file's own order goes over it row by row. Where something does cross it, such as a title or a
    footer, the page is cut above and below the most boxes that are free of it. What is left is read
    from top to bottom.

    Args:
        boxes: in pixels.
        ranks: their places in the order of the file, which says in doubt how a page is cut.
        from_right: columns are read from right to left.
    """
    items = list(range(len(boxes)))
    each = [[rank] for rank in ranks] or [[0.0]] * len(boxes)
    return _Cuts(boxes, each, from_right).ordered(items)


def in_reading_order(regions: Sequence[Region], lines: Sequence[Line] = ()) -> list[Region]:
    """Returns regions sorted and numbered, page headers first and page footers last.

    Those without a box stay behind the one before them.

    Args:
        regions: in any order.
        lines: of the page as its file lists them, if a file does.
    """
    head: list[Region] = []
    groups: list[tuple[Box, list[Region]]] = []
    for region in regions:
        if region.bbox is not None:
            groups.append((region.bbox, [region]))
        else:
            (groups[-1][1] if groups else head).append(region)
    turned = sum(is_right_to_left(draft) for region in regions for draft in region.drafts[:1])
    boxes = [bbox for bbox, _ in groups]
    order = sorted(
        reading_order(boxes, _ranks(boxes, lines), from_right=2 * turned > len(regions)),
        key=lambda rank: RANKS.get(groups[rank][1][0].label, 1),
    )
    return numbered([*head, *(region for rank in order for region in groups[rank][1])])


def _ranks(boxes: Sequence[Box], lines: Sequence[Line]) -> list[float]:
    """Returns where the first line of each box stands in the file; behind all for a box without
    one.
    """
    ranks = [float(len(lines))] * len(boxes)
    for rank, line in enumerate(lines):
        x, y = (line.bbox[0] + line.bbox[2]) / 2, (line.bbox[1] + line.bbox[3]) / 2
        for place, box in enumerate(boxes):
            if rank < ranks[place] and box[0] <= x <= box[2] and box[1] <= y <= box[3]:
                ranks[place] = float(rank)
    return ranks if lines else []


@dataclass(frozen=True)
class _Cuts:
    """Cuts boxes into columns and bands; see `reading_order`."""

    boxes: Sequence[Box]
    ranks: Sequence[Sequence[float]]
    from_right: bool

    def ordered(self, items: list[int]) -> list[int]:
        """Returns items in reading order."""
        if len(items) < 2:
            return items
        columns = _columns(items, self.boxes)
        if columns and self.from_right:
            columns = columns[::-1]
        bands = _cut(items, self.boxes, 1)
        if columns and len(bands) > 1 and self._goes_row_by_row(columns):
            return [item for band in bands for item in self.ordered(band)]
        parts = columns or _split(items, self.boxes)
        if parts:
            return [item for part in parts for item in self.ordered(part)]
        return sorted(items, key=lambda item: (self.boxes[item][1], self.boxes[item][0]))

    def columns(self, items: list[int]) -> list[list[int]]:
        """Returns items of each column that the file lists one after the other; of a table it lists
        rows, so that stays whole.
        """
        columns = _columns(items, self.boxes)
        if columns:
            whole = [columns[0]]
            for column in columns[1:]:
                if self._follows([whole[-1], column]):
                    whole.append(column)
                else:
                    whole[-1] = [*whole[-1], *column]
            return (
                [p for subset in whole for p in self.columns(subset)] if len(whole) > 1 else [items]
            )
        parts = _split(items, self.boxes) or []
        nested = [self.columns(part) for part in parts]
        return (
            [group for part in nested for group in part] if any(map(_several, nested)) else [items]
        )

    def _goes_row_by_row(self, columns: Sequence[Sequence[int]]) -> bool:
        """Returns whether the file goes down all columns at once, as with headings beside their
        texts.
        """
        column = {item: place for place, part in enumerate(columns) for item in part}
        order = sorted(column, key=lambda item: self.ranks[item][0])
        pairs = list(pairwise(order))
        if not any(column[first] > column[other] for first, other in pairs):
            return False
        return all(self.boxes[other][3] > self.boxes[first][1] for first, other in pairs)

    def _follows(self, parts: Sequence[Sequence[int]]) -> bool:
        """Returns whether the file's order is that of these parts, if it has any."""
        ranks = [sorted(rank for item in part for rank in self.ranks[item]) for part in parts]
        turned = whole = 0
        for before, after in combinations(ranks, 2):
            whole += len(before) * len(after)
            turned += sum(bisect_left(after, rank) for rank in before)
        is_listed = len({rank for part in ranks for rank in part}) > 1
        return is_listed and turned <= FEW * whole


def _several(groups: Sequence[Sequence[int]]) -> bool:
    return len(groups) > 1


def column_groups(boxes: Sequence[Box], ranks: Sequence[Sequence[float]]) -> list[list[int]]:
    """Returns indices of boxes in columns that a file lists one after the other, in no special
    order.

    Args:
        boxes: in pixels.
        ranks: the places of their lines in the order of the file.
    """
    return _Cuts(boxes, ranks, False).columns(list(range(len(boxes))))


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
    """Returns cuts from left to right, above and below the most boxes that then are in columns."""
    if not _side_by_side(items, boxes):
        return None
    bands = _cut(items, boxes, 1)
    runs = [(a, b) for a in range(len(bands)) for b in range(a + 1, len(bands) + 1)]
    for start, end in sorted(runs, key=lambda run: -sum(map(len, bands[slice(*run)]))):
        run = list(chain(*bands[start:end]))
        if len(run) < len(items) and _columns(run, boxes):
            parts = [list(chain(*bands[:start])), run, list(chain(*bands[end:]))]
            return [part for part in parts if part]
    return None


def _side_by_side(items: list[int], boxes: Sequence[Box]) -> bool:
    """Returns whether some box is to the right of another one."""
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
    """Returns groups along an axis (0: x, 1: y) with nothing between them."""
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
