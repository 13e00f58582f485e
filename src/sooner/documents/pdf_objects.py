"""What is drawn on a PDF page besides text: boxes of raster pictures, and of straight lines.

Drawings made of lines are no pictures here: only a layout model, such as OCR has, sees where one
ends.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import islice
from types import ModuleType
from typing import Any

from .page import Line
from .regions import Box, Size, area, around, clipped, connected, overlap

DEEPEST, MAX_OBJECTS, MAX_SEGMENTS = 5, 8000, 400
"""Levels of forms within forms, objects of a page and segments of a path that are looked at; with
more they are a drawing."""

LEVEL = 0.1
"""Points by which the ends of a straight line may miss each other."""


MIN_AREA, SCAN, NARROWEST = 0.005, 0.7, 24
"""Shares of the page and pixels of the shorter side: smaller pictures are bullets, icons and rules,
larger ones the page itself."""

GAP, MAX_PARTS, MAX_WORDS = 3, 400, 30
"""Pixels between parts of one picture, as many programs write pictures in strips; parts of a page
that are looked at; and words upon a picture: with more it is a background."""


def illustrations(boxes: Sequence[Box], lines: Sequence[Line], size: Size) -> list[Box]:
    """Returns boxes of pictures that can be shown by themselves.

    Args:
        boxes: of all raster pictures on a page, in pixels.
        lines: of text upon the page.
        size: its width and height.
    """
    parts = [clipped(box, *size) for box in boxes[:MAX_PARTS]]
    pictures = []
    for box in map(around, connected(parts, GAP)):
        share = area(box) / max(size[0] * size[1], 1)
        upon = sum(len(line.text.split()) for line in lines if overlap(line.bbox, box) > 0)
        is_wide = min(box[2] - box[0], box[3] - box[1]) >= NARROWEST
        if is_wide and MIN_AREA <= share < SCAN and upon <= MAX_WORDS:
            pictures.append(box)
    return pictures


def drawn_boxes(pdfium: ModuleType, page: Any) -> tuple[list[Box], list[Box]]:
    """Returns boxes of the raster pictures on an open page, and of its paths, in points.

    A path of several straight lines, such as a frame that is not filled, is a box for each of them.
    PDFium gives an object of a form its place within the form, so forms' matrices are applied here.
    """
    raw = pdfium.raw
    images: list[Box] = []
    paths: list[Box] = []
    kinds = [raw.FPDF_PAGEOBJ_IMAGE, raw.FPDF_PAGEOBJ_PATH, raw.FPDF_PAGEOBJ_FORM]
    matrices = [pdfium.PdfMatrix()]  # of the page, and of the forms around an object
    for thing in islice(page.get_objects(kinds, DEEPEST), MAX_OBJECTS):
        del matrices[thing.level + 1 :]
        if thing.type == raw.FPDF_PAGEOBJ_FORM:
            matrices.append(thing.get_matrix().multiply(matrices[-1]))
        elif thing.type == raw.FPDF_PAGEOBJ_IMAGE:
            images += _bounds(raw, thing, matrices[-1])
        else:
            paths += _lines(raw, thing, matrices[-1]) or _bounds(raw, thing, matrices[-1])
    return images, paths


def _bounds(raw: Any, thing: Any, matrix: Any) -> list[Box]:
    sides = [ctypes.c_float() for _ in range(4)]
    if not raw.FPDFPageObj_GetBounds(thing.raw, *sides):
        return []
    box: Box = matrix.on_rect(*(side.value for side in sides))
    return [box]


def _lines(raw: Any, path: Any, matrix: Any) -> list[Box]:
    """Returns boxes of the straight lines of a path that is drawn and not filled."""
    fill, is_stroked = ctypes.c_int(), ctypes.c_int()
    raw.FPDFPath_GetDrawMode(path.raw, fill, is_stroked)
    count = raw.FPDFPath_CountSegments(path.raw)
    if fill.value or not is_stroked.value or not 2 < count <= MAX_SEGMENTS:
        return []
    matrix = path.get_matrix().multiply(matrix)
    boxes: list[Box] = []
    start = last = (0.0, 0.0)
    x, y = ctypes.c_float(), ctypes.c_float()
    for place in range(count):
        segment = raw.FPDFPath_GetPathSegment(path.raw, place)
        raw.FPDFPathSegment_GetPoint(segment, x, y)
        point = matrix.on_point(x.value, y.value)
        kind = raw.FPDFPathSegment_GetType(segment)
        ends = [(last, point)] if kind == raw.FPDF_SEGMENT_LINETO else []
        if kind == raw.FPDF_SEGMENT_MOVETO:
            start = point
        if raw.FPDFPathSegment_GetClose(segment):
            ends.append((point, start))
        boxes += [around([(*a, *a), (*b, *b)]) for a, b in ends if _is_straight(a, b)]
        last = point
    return boxes


def _is_straight(point: tuple[float, float], other: tuple[float, float]) -> bool:
    """Returns whether a line runs from left to right or from top to bottom."""
    return min(abs(point[0] - other[0]), abs(point[1] - other[1])) <= LEVEL and point != other
