"""Reading order from boxes alone, for pages of one or more columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from .languages import is_right_to_left
from .regions import PAGE_FOOTER, PAGE_HEADER, Box, Region, around, numbered

RANKS = {PAGE_HEADER: 0, PAGE_FOOTER: 2}

SLACK = 0.15
"""Part of a box's height or width that may reach over a cut: detected boxes are never exact."""


def reading_order(boxes: Sequence[Box], from_right: bool = False) -> list[int]:
    """Returns indices of `boxes` in reading order: columns from left to right, each from top to
    bottom.

    A recursive XY-cut. A gutter between columns that nothing crosses is cut first. Where something
    does cross it, such as a title or a footer, the page is cut above and below the most boxes that
    are free of it. What is left is read from top to bottom.

    Args:
        boxes: in pixels.
        from_right: columns are read from right to left.
    """

    def ordered(items: list[int]) -> list[int]:
        parts = _columns(items, boxes)
        if parts and from_right:
            parts = parts[::-1]
        parts = parts or _split(items, boxes)
        if parts:
            return [item for part in parts for item in ordered(part)]
        return sorted(items, key=lambda item: (boxes[item][1], boxes[item][0]))

    return ordered(list(range(len(boxes))))


def in_reading_order(regions: Sequence[Region]) -> list[Region]:
    """Returns regions sorted and numbered, page headers first and page footers last.

    Those without a box stay behind the one before them.
    """
    head: list[Region] = []
    groups: list[tuple[Box, list[Region]]] = []
    for region in regions:
        if region.bbox is not None:
            groups.append((region.bbox, [region]))
        else:
            (groups[-1][1] if groups else head).append(region)
    turned = sum(is_right_to_left(draft) for region in regions for draft in region.drafts[:1])
    order = sorted(
        reading_order([bbox for bbox, _ in groups], from_right=2 * turned > len(regions)),
        key=lambda place: RANKS.get(groups[place][1][0].label, 1),
    )
    return numbered([*head, *(region for place in order for region in groups[place][1])])


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
