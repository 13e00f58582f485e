"""The text layer of a PDF page, and what can't be trusted.

PDFium says which characters are a word and which words a line (`pdf_glyphs.py`); lines come
of that (`pdf_lines.py`), without what nobody sees on the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from .languages import are_words
from .lattice import MAX_PATHS, rules_of
from .page import INK, MAX_GARBLED, Line, PageText, Picture
from .pdf_annotations import with_annotations
from .pdf_glyphs import GlyphReader, Placement
from .pdf_lines import lines_of
from .pdf_objects import SCAN, drawn_boxes, illustrations
from .regions import Box, area

MOSTLY, FEW = 0.6, 100
"""Share of a page's characters that run in one direction from which it is the page's, and the
number up to which they may be a stamp on a scan."""

PANEL = 0.001
"""Share of a page from which something that is drawn may be a panel with text on it."""

STEP = 3
"""Every so many pixels are looked at for ink."""


def page_text(pdfium: ModuleType, page: Any, picture: Picture) -> PageText:
    """Returns lines of a page in pixels of `picture`, with the signs of a bad layer measured."""
    textpage = page.get_textpage()
    try:
        place = Placement(pdfium, page, picture)
        images, paths = ([place.box(*box) for box in boxes] for boxes in drawn_boxes(pdfium, page))
        size = picture.shape[1], picture.shape[0]
        rules = rules_of(paths, size) if len(paths) < MAX_PATHS else []
        is_scan = any(_share(box, picture) >= SCAN for box in images)
        reader = GlyphReader(pdfium.raw, textpage, place, picture, is_scan)
        down = [rule for rule in rules if rule[3] - rule[1] > rule[2] - rule[0]]
        lines = lines_of(reader.runs(), down)
        lines, fields = with_annotations(lines, pdfium.raw, page, place.box, place.unit)
    finally:
        textpage.close()
    return PageText(
        lines,
        _garbled(reader, lines),
        _coverage(picture, [*(line.bbox for line in lines), *fields], images, paths),
        illustrations(images, lines, size),
        rules,
        _noted(reader.hidden),
    )


def _noted(hidden: int) -> str:
    count = "1 hidden word was" if hidden == 1 else f"{hidden} hidden words were"
    return f"{count} left out" if hidden else ""


def text_turn(text: PageText) -> int:
    """Returns degrees, a multiple of 90, by which a page is to be turned clockwise so that most of
    its text runs from left to right. A stamp on a scan says nothing about the scan.
    """
    counts = Counter[int]()
    for line in text.lines:
        counts[round(-line.angle / 90) * 90 % 360] += len(line.text)
    turn, count = max(counts.items(), key=lambda item: item[1], default=(0, 0))
    return turn if count > max(MOSTLY * counts.total(), FEW) else 0


def _garbled(reader: GlyphReader, lines: Sequence[Line]) -> float:
    """Returns share of the characters that mean nothing, from 0 to 1."""
    texts = [line.text for line in lines]
    bad = reader.bad / max(reader.seen, 1)
    unmapped = reader.unmapped / max(reader.seen, 1)
    return bad if unmapped <= MAX_GARBLED or are_words(texts) else max(bad, unmapped)


def _share(box: Box, picture: Picture) -> float:
    return area(box) / (picture.shape[0] * picture.shape[1])


def _coverage(
    picture: Picture, texts: Sequence[Box], images: Sequence[Box], paths: Sequence[Box]
) -> float:
    """Returns share of the ink within boxes of text; that of illustrations, lines and panels of one
    colour does not count.
    """
    grey = picture[::STEP, ::STEP].mean(axis=2)  # [rows, columns]
    ink = np.abs(grey - np.median(grey)) > INK
    for box in paths:
        window = _window(box)
        if PANEL < _share(box, picture) < SCAN and ink[window].any():
            ink[window] = np.abs(grey[window] - np.median(grey[window])) > INK
    for box in paths:
        if min(box[2] - box[0], box[3] - box[1]) <= STEP:
            ink[_window(box)] = False
    for box in images:
        if _share(box, picture) < SCAN:
            ink[_window(box)] = False
    if not ink.any():
        return 1.0 if texts else 0.0
    inside = np.zeros_like(ink)
    for box in texts:
        inside[_window(box)] = True
    return float((ink & inside).sum() / ink.sum())


def _window(box: Box) -> tuple[slice, slice]:
    x0, y0, x1, y1 = (round(edge / STEP) for edge in box)
    return slice(max(y0, 0), max(y1 + 1, 0)), slice(max(x0, 0), max(x1 + 1, 0))
