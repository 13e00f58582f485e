"""The text layer of a PDF page: words with boxes, and whether they can be trusted."""

from __future__ import annotations

import ctypes
import unicodedata
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from .boxes import Box, around, shared_height, shared_width
from .page import PageText, Picture, Word

FINE = 1_000_000
"""Pixels of the imaginary screen on which PDFium is asked where a point of the page is."""

HYPHEN = 2
"""PDFium's character for a hyphen at the end of a line."""

SCAN = 0.7
"""Share of the page from which a picture is the page itself and no illustration."""

STEP = 3
"""Every so many pixels are looked at for ink."""

SAME_LINE = 0.3
"""Share of the smaller box in which two letters must be beside each other, or above."""

CONTRAST = 48
"""Difference in brightness to the paper from which a pixel is ink."""


def page_text(pdfium: ModuleType, page: Any, picture: Picture) -> PageText:
    """Words of a page in pixels of `picture`, with the signs of a bad layer measured."""
    textpage = page.get_textpage()
    try:
        place = _Placement(pdfium, page, picture)
        letters, garbled = _letters(pdfium, textpage, place)
        words = list(_words(letters))
        images = [place.box(*image.get_bounds()) for image in _images(pdfium, page)]
    finally:
        textpage.close()
    return PageText(words, garbled, _coverage(picture, words, images))


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


Letter = tuple[str, Box | None, float]
"""A character, its box in pixels (`None` for one that is not drawn), and its font's size."""


def _letters(pdfium: ModuleType, textpage: Any, place: _Placement) -> tuple[list[Letter], float]:
    """Characters of a page, and the share of those without a meaning."""
    raw = pdfium.raw
    left, right, bottom, top = (ctypes.c_double() for _ in range(4))
    rect = raw.FS_RECTF()
    letters: list[Letter] = []
    seen = bad = 0
    for index in range(textpage.count_chars()):
        code = raw.FPDFText_GetUnicode(textpage, index)
        if raw.FPDFText_IsGenerated(textpage, index) == 1 and code != HYPHEN:
            letters.append((" " if code != 0x0A else "\n", None, 0.0))
            continue
        if raw.FPDFText_GetLooseCharBox(textpage, index, rect):
            corners = rect.left, rect.bottom, rect.right, rect.top
        else:
            raw.FPDFText_GetCharBox(textpage, index, left, right, bottom, top)
            corners = left.value, bottom.value, right.value, top.value
        text = "-" if code == HYPHEN else _character(code)
        if not text.isspace():
            seen += 1
            unmapped = raw.FPDFText_HasUnicodeMapError(textpage, index) == 1
            bad += unmapped or _is_garbage(text)
        size = raw.FPDFText_GetFontSize(textpage, index) * place.unit
        letters.append((text, place.box(*corners), size))
    return letters, bad / max(seen, 1)


def _character(code: int) -> str:
    try:
        return chr(code) if code and not 0xD800 <= code < 0xE000 else "\ufffd"
    except (ValueError, OverflowError):
        return "\ufffd"


def _is_garbage(text: str) -> bool:
    """Replacements, control characters, private use and unassigned ones."""
    return text == "\ufffd" or unicodedata.category(text) in ("Cc", "Co", "Cn", "Cs")


def _words(letters: Sequence[Letter]) -> Iterator[Word]:
    """Characters between spaces; a jump on the page ends a word, too."""
    part: list[Letter] = []
    for letter in letters:
        text, bbox, _ = letter
        if bbox is None or text.isspace() or (part and _is_apart(part[-1], letter)):
            if part:
                yield _word(part)
            part = []
        if bbox is not None and not text.isspace():
            part.append(letter)
    if part:
        yield _word(part)


def _is_apart(one: Letter, other: Letter) -> bool:
    """Whether a letter does not go on where another one ends."""
    a, b = one[1], other[1]
    if a is None or b is None:
        return True
    reach = max(a[3] - a[1], a[2] - a[0])
    if shared_height(a, b) > SAME_LINE:
        return not -reach < b[0] - a[2] < reach
    return not -reach < b[1] - a[3] < reach or shared_width(a, b) <= SAME_LINE


def _word(letters: Sequence[Letter]) -> Word:
    boxes = [bbox for _, bbox, _ in letters if bbox is not None]
    text = unicodedata.normalize("NFC", "".join(text for text, _, _ in letters))
    return Word(text, around(boxes), max(size for _, _, size in letters))


def _images(pdfium: ModuleType, page: Any) -> Iterator[Any]:
    yield from page.get_objects(filter=[pdfium.raw.FPDF_PAGEOBJ_IMAGE], max_depth=3)


def _coverage(picture: Picture, words: Sequence[Word], images: Sequence[Box]) -> float:
    """Share of the ink within words; ink of illustrations does not count."""
    grey = picture[::STEP, ::STEP].mean(axis=2)  # [rows, columns]
    ink = np.abs(grey - np.median(grey)) > CONTRAST
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
