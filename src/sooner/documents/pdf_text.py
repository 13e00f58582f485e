"""The text layer of a PDF page: words with boxes, and whether they can be trusted."""

from __future__ import annotations

import ctypes
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice
from types import ModuleType
from typing import Any

import numpy as np

from .illustrations import SCAN, illustrations
from .page import INK, NO_MEANING, PageText, Picture, Word
from .pdf_words import Font, Letter, words_of
from .regions import Box, shared_height
from .ruled import MOST, rules_of

FINE = 1_000_000
"""Pixels of the imaginary screen on which PDFium is asked where a point of the page is."""

HYPHEN = 2
"""PDFium's character for a hyphen at the end of a line."""

STEP = 3
"""Every so many pixels are looked at for ink."""


def page_text(pdfium: ModuleType, page: Any, picture: Picture) -> PageText:
    """Words of a page in pixels of `picture`, with the signs of a bad layer measured."""
    textpage = page.get_textpage()
    try:
        place = _Placement(pdfium, page, picture)
        letters, garbled = _letters(pdfium, textpage, place)
        words = words_of(letters)
        images = [place.box(*image.get_bounds()) for image in _images(pdfium, page)]
        paths = [place.box(*path.get_bounds()) for path in _paths(pdfium, page)]
    finally:
        textpage.close()
    size = picture.shape[1], picture.shape[0]
    shown = illustrations(images, words, size)
    rules = rules_of(paths, size) if len(paths) < MOST else []
    return PageText(words, garbled, _coverage(picture, words, images), shown, rules)


class _Placement:
    """Where a point of the page is in its picture: rotation and cropping are PDFium's affair."""

    def __init__(self, pdfium: ModuleType, page: Any, picture: Picture) -> None:
        height, width = picture.shape[:2]
        self.scale = np.array([width, height]) / FINE
        self.pdfium, self.page = pdfium, page
        origin, x, y = (self._device(*point) for point in ((0, 0), (1000, 0), (0, 1000)))
        self.origin = origin
        self.axes = np.stack([x - origin, y - origin]) / 1000  # [2 axes of the page, 2]
        self.unit = float(np.hypot(*self.axes[1]))  # pixels a point

    def box(self, left: float, bottom: float, right: float, top: float) -> Box:
        """A box of the page, in pixels."""
        corners = self.origin + np.array([[left, bottom], [right, top]]) @ self.axes
        (x0, y0), (x1, y1) = corners.min(0), corners.max(0)
        return float(x0), float(y0), float(x1), float(y1)

    def _device(self, x: float, y: float) -> np.ndarray:
        across, down = ctypes.c_int(), ctypes.c_int()
        self.pdfium.raw.FPDF_PageToDevice(self.page, 0, 0, FINE, FINE, 0, x, y, across, down)
        return np.array([across.value, down.value]) * self.scale


def _letters(pdfium: ModuleType, textpage: Any, place: _Placement) -> tuple[list[Letter], float]:
    """Characters that are drawn on a page, and the share of those without a meaning.

    Blanks and line ends that PDFium makes up are left out: where words end is told by places.
    """
    raw = pdfium.raw
    fonts, boxes = _Fonts(raw, textpage), _Boxes(raw, textpage)
    letters: list[Letter] = []
    seen = bad = 0
    for index in range(textpage.count_chars()):
        code = raw.FPDFText_GetUnicode(textpage, index)
        if raw.FPDFText_IsGenerated(textpage, index) == 1 and code != HYPHEN:
            continue
        text = "-" if code == HYPHEN else _character(code)
        corners = boxes.of(index, is_sign=not text.isalnum())
        if not text.isspace():
            seen += 1
            unmapped = raw.FPDFText_HasUnicodeMapError(textpage, index) == 1
            bad += unmapped or _is_garbage(text)
        size = raw.FPDFText_GetFontSize(textpage, index) * place.unit
        letters.append(Letter(text, place.box(*corners), size, fonts.of(index)))
    return letters, bad / max(seen, 1)


class _Boxes:
    """Boxes of a page's characters, in points: left, bottom, right, top."""

    def __init__(self, raw: Any, textpage: Any) -> None:
        self.raw, self.textpage = raw, textpage
        self._tight = [ctypes.c_double() for _ in range(4)]
        self._loose = raw.FS_RECTF()

    def of(self, index: int, is_sign: bool) -> Box:
        """As high as the font and as wide as the character is meant to be.

        A sign gets the box of its ink if that is elsewhere: roots and large brackets of TeX's fonts
        hang below the line that they stand on.
        """
        rect = self._loose
        if not self.raw.FPDFText_GetLooseCharBox(self.textpage, index, rect):
            return self._ink(index)
        loose = rect.left, rect.bottom, rect.right, rect.top
        if not is_sign:
            return loose
        ink = self._ink(index)
        high = ink[3] - ink[1]
        return ink if high > 0 and shared_height(ink, loose) < 0.5 else loose

    def _ink(self, index: int) -> Box:
        left, right, bottom, top = self._tight
        self.raw.FPDFText_GetCharBox(self.textpage, index, left, right, bottom, top)
        return left.value, bottom.value, right.value, top.value


class _Fonts:
    """Fonts of a page's characters."""

    def __init__(self, raw: Any, textpage: Any) -> None:
        self.raw, self.textpage = raw, textpage
        self._flags = ctypes.c_int()
        self._name = ctypes.create_string_buffer(128)
        self._known: dict[tuple[bytes, int, int], Font] = {}

    def of(self, index: int) -> Font:
        self.raw.FPDFText_GetFontInfo(self.textpage, index, self._name, 128, self._flags)
        weight = self.raw.FPDFText_GetFontWeight(self.textpage, index)
        key = self._name.value, self._flags.value, weight
        if key not in self._known:
            name = key[0].decode("utf-8", "replace")
            self._known[key] = Font.told(name, max(self._flags.value, 0), weight)
        return self._known[key]


def _character(code: int) -> str:
    """A character; U+FFFD for none, and for control characters, which fonts have for signs of
    their own."""
    try:
        text = chr(code)
    except (ValueError, OverflowError):
        return NO_MEANING
    is_none = not code or unicodedata.category(text) in ("Cc", "Cs")
    return NO_MEANING if is_none and not text.isspace() else text


def _is_garbage(text: str) -> bool:
    """Replacements, private use and unassigned characters."""
    return text == NO_MEANING or unicodedata.category(text) in ("Co", "Cn")


def _images(pdfium: ModuleType, page: Any) -> Iterator[Any]:
    yield from page.get_objects(filter=[pdfium.raw.FPDF_PAGEOBJ_IMAGE], max_depth=3)


def _paths(pdfium: ModuleType, page: Any) -> Iterator[Any]:
    yield from islice(page.get_objects(filter=[pdfium.raw.FPDF_PAGEOBJ_PATH], max_depth=3), MOST)


def _coverage(picture: Picture, words: Sequence[Word], images: Sequence[Box]) -> float:
    """Share of the ink within words; ink of illustrations does not count."""
    grey = picture[::STEP, ::STEP].mean(axis=2)  # [rows, columns]
    ink = np.abs(grey - np.median(grey)) > INK
    page = picture.shape[0] * picture.shape[1]
    for box in images:
        if (box[2] - box[0]) * (box[3] - box[1]) < SCAN * page:
            ink[_window(box)] = False
    if not ink.any():
        return 1.0 if words else 0.0
    inside = np.zeros_like(ink)
    for word in words:
        inside[_window(word.bbox)] = True
    return float((ink & inside).sum() / ink.sum())


def _window(box: Box) -> tuple[slice, slice]:
    x0, y0, x1, y1 = (max(round(edge / STEP), 0) for edge in box)
    return slice(y0, y1 + 1), slice(x0, x1 + 1)
