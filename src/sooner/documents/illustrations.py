"""Photos and other raster pictures on a PDF's page, as regions between those of its text.

Drawings made of lines are not among them: only a layout model, such as OCR has, sees where one
ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from .page import Line
from .regions import Box, Size, around, clipped, overlap

MIN_AREA, SCAN = 0.005, 0.7
"""Shares of the page: smaller ones are bullets, icons and rules, larger ones the page itself."""

NARROWEST = 24
"""Pixels of the shorter side."""

GAP = 3
"""Pixels between parts of one picture: many programs write pictures in strips."""

MAX_PARTS, MAX_WORDS = 400, 30
"""Parts of a page that are looked at, and words upon a picture; with more it is a background."""


def illustrations(boxes: Sequence[Box], lines: Sequence[Line], size: Size) -> list[Box]:
    """Returns boxes of pictures that can be shown by themselves.

    Args:
        boxes: of all raster pictures on a page, in pixels.
        lines: of text upon the page.
        size: its width and height.
    """
    whole = _merged([clipped(box, *size) for box in boxes[:MAX_PARTS]])
    return [box for box in whole if _is_picture(box, size) and not _is_background(box, lines)]


def _merged(boxes: Sequence[Box]) -> list[Box]:
    """Returns boxes that touch each other as one."""
    merged: list[Box] = []
    for box in boxes:
        near = [area for area in merged if _touch(area, box)]
        while near:
            merged = [area for area in merged if area not in near]
            box = around([box, *near])
            near = [area for area in merged if _touch(area, box)]
        merged.append(box)
    return merged


def _touch(box: Box, other: Box) -> bool:
    across = min(box[2], other[2]) - max(box[0], other[0])
    down = min(box[3], other[3]) - max(box[1], other[1])
    return min(across, down) >= -GAP


def _is_picture(box: Box, size: Size) -> bool:
    width, height = box[2] - box[0], box[3] - box[1]
    share = width * height / max(size[0] * size[1], 1)
    return min(width, height) >= NARROWEST and MIN_AREA <= share < SCAN


def _is_background(box: Box, lines: Sequence[Line]) -> bool:
    upon = (line for line in lines if overlap(line.bbox, box) > 0)
    return sum(len(line.text.split()) for line in upon) > MAX_WORDS
