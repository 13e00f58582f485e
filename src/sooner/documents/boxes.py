"""Boxes on a page: `(left, top, right, bottom)` in pixels, the origin at the top left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import SoonerError

Box = tuple[float, float, float, float]


def box(value: Sequence[float]) -> Box:
    """Four numbers as a box, corners in order.

    Raises:
        SoonerError: something else than four numbers.
    """
    try:
        x0, y0, x1, y1 = map(float, value)
    except (TypeError, ValueError):
        raise SoonerError(f"{value!r} is no box; give [left, top, right, bottom]") from None
    return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)


def area(a: Box) -> float:
    return max(a[2] - a[0], 0.0) * max(a[3] - a[1], 0.0)


def overlap(a: Box, b: Box) -> float:
    """Area that two boxes share."""
    return area((max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])))


def iou(a: Box, b: Box) -> float:
    """Intersection over union."""
    shared = overlap(a, b)
    return shared / max(area(a) + area(b) - shared, 1e-9)


def around(boxes: Iterable[Box]) -> Box:
    """The smallest box that holds all of `boxes`, of which there must be one."""
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def shared_width(a: Box, b: Box) -> float:
    """Width in which two boxes are above each other, as a share of the narrower one."""
    narrow = min(a[2] - a[0], b[2] - b[0])
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) / max(narrow, 1e-9)


def shared_height(a: Box, b: Box) -> float:
    """Height in which two boxes are beside each other, as a share of the lower one."""
    low = min(a[3] - a[1], b[3] - b[1])
    return max(0.0, min(a[3], b[3]) - max(a[1], b[1])) / max(low, 1e-9)


def scaled(a: Box, x: float, y: float) -> Box:
    return a[0] * x, a[1] * y, a[2] * x, a[3] * y


def clipped(a: Box, width: float, height: float) -> Box:
    """The part of a box that is on a page."""
    x0, x1 = (min(max(value, 0.0), width) for value in (a[0], a[2]))
    y0, y1 = (min(max(value, 0.0), height) for value in (a[1], a[3]))
    return x0, y0, x1, y1
