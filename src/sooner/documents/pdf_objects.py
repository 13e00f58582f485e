"""What is drawn on a PDF page besides text: boxes of raster pictures, and of straight lines.

PDFium gives an object of a form its place within the form, so each form's matrix is applied here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any

from .regions import Box, around

Matrix = tuple[float, float, float, float, float, float]
"""`a b c d e f` of ISO 32000-1, 8.3.3."""

WHOLE: Matrix = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)

DEEPEST, MAX_OBJECTS, MAX_SEGMENTS = 4, 8000, 400
"""Forms within forms, objects of a page and segments of a path that are looked at; with more they
are a drawing."""

LEVEL = 0.1
"""Points by which the ends of a straight line may miss each other."""


def drawn_boxes(raw: Any, page: Any) -> tuple[list[Box], list[Box]]:
    """Returns boxes of the raster pictures on an open page, and of its paths, in points.

    A path of several straight lines, such as a frame that is not filled, is a box for each of them.
    """
    images: list[Box] = []
    paths: list[Box] = []
    for thing, kind, matrix in islice(_objects(raw, page), MAX_OBJECTS):
        if kind == raw.FPDF_PAGEOBJ_IMAGE:
            images += _bounds(raw, thing, matrix)
        else:
            paths += _path(raw, thing, matrix)
    return images, paths


def _objects(raw: Any, page: Any) -> Iterator[tuple[Any, int, Matrix]]:
    """Yields pictures and paths of a page and of its forms, their kinds, and their forms'
    matrices.
    """
    things = [raw.FPDFPage_GetObject(page, n) for n in range(raw.FPDFPage_CountObjects(page))]
    yield from _walked(raw, things, WHOLE, DEEPEST)


def _walked(
    raw: Any, things: list[Any], matrix: Matrix, levels: int
) -> Iterator[tuple[Any, int, Matrix]]:
    for thing in things:
        kind = raw.FPDFPageObj_GetType(thing)
        if kind in (raw.FPDF_PAGEOBJ_IMAGE, raw.FPDF_PAGEOBJ_PATH):
            yield thing, kind, matrix
        elif kind == raw.FPDF_PAGEOBJ_FORM and levels:
            count = raw.FPDFFormObj_CountObjects(thing)
            inside = [raw.FPDFFormObj_GetObject(thing, n) for n in range(count)]
            yield from _walked(raw, inside, _times(_matrix(raw, thing), matrix), levels - 1)


def _path(raw: Any, path: Any, matrix: Matrix) -> list[Box]:
    whole = _bounds(raw, path, matrix)
    fill, is_stroked = ctypes.c_int(), ctypes.c_int()
    raw.FPDFPath_GetDrawMode(path, fill, is_stroked)
    count = raw.FPDFPath_CountSegments(path)
    if fill.value or not is_stroked.value or not 2 < count <= MAX_SEGMENTS:
        return whole
    to_page = _times(_matrix(raw, path), matrix)
    points = [_segment(raw, path, place, to_page) for place in range(count)]
    start = points[0][1]
    boxes = []
    for (_, point, is_closed), (kind, other, _) in pairwise([*points, (None, start, False)]):
        if kind == raw.FPDF_SEGMENT_LINETO and _is_straight(point, other):
            boxes.append(around([(*point, *point), (*other, *other)]))
        if is_closed and _is_straight(point, start):
            boxes.append(around([(*point, *point), (*start, *start)]))
        if kind == raw.FPDF_SEGMENT_MOVETO:
            start = other
    return boxes or whole


def _segment(
    raw: Any, path: Any, place: int, matrix: Matrix
) -> tuple[int, tuple[float, float], bool]:
    """Kind of a segment, where it ends on the page, and whether it closes its figure."""
    segment = raw.FPDFPath_GetPathSegment(path, place)
    x, y = ctypes.c_float(), ctypes.c_float()
    raw.FPDFPathSegment_GetPoint(segment, x, y)
    kind = raw.FPDFPathSegment_GetType(segment)
    return kind, _at(matrix, x.value, y.value), bool(raw.FPDFPathSegment_GetClose(segment))


def _is_straight(point: tuple[float, float], other: tuple[float, float]) -> bool:
    """Returns whether a line runs from left to right or from top to bottom."""
    return min(abs(point[0] - other[0]), abs(point[1] - other[1])) <= LEVEL and point != other


def _bounds(raw: Any, thing: Any, matrix: Matrix) -> list[Box]:
    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    if not raw.FPDFPageObj_GetBounds(thing, left, bottom, right, top):
        return []
    corners = [
        _at(matrix, x.value, y.value) for x, y in ((left, bottom), (right, top), (left, top))
    ]
    return [around((x, y, x, y) for x, y in corners)]


def _matrix(raw: Any, thing: Any) -> Matrix:
    matrix = raw.FS_MATRIX()
    if not raw.FPDFPageObj_GetMatrix(thing, matrix):
        return WHOLE
    return matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f


def _at(m: Matrix, x: float, y: float) -> tuple[float, float]:
    return m[0] * x + m[2] * y + m[4], m[1] * x + m[3] * y + m[5]


def _times(m: Matrix, n: Matrix) -> Matrix:
    """First `m`, then `n`."""
    return (
        m[0] * n[0] + m[1] * n[2],
        m[0] * n[1] + m[1] * n[3],
        m[2] * n[0] + m[3] * n[2],
        m[2] * n[1] + m[3] * n[3],
        *_at(n, m[4], m[5]),
    )
