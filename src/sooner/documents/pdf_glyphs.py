"""Characters of a PDF's page as PDFium tells them: where they stand, and whether they are seen."""

from __future__ import annotations

import ctypes
import math
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .page import NO_MEANING, Picture
from .pdf_fonts import TEX_SIGNS, Font, font_of
from .pdf_placement import Placement
from .regions import Box, around, shared_height

HYPHENS = (2, 0xFFFE)
"""PDFium's characters for a hyphen at the end of a line."""

INVISIBLE = 3
"""Text rendering mode (ISO 32000-1, table 106) that draws nothing."""

ASCENT, DESCENT = 0.8, 0.22
"""Height of a line above and below its baseline, in font sizes: what fonts say of themselves may
be several times as much."""

MIN_SIZE = 2.0
"""Points below which nobody reads a text."""

OTHER_SCRIPTS = 0x250
"""The first character that PDFium's own fonts don't have."""

MIN_CONTRAST = 12
"""Difference in brightness within a word's box below which nothing is seen there."""

SMALLER, SMALLEST, LOWERED, LINE = 0.88, 0.5, 0.35, 0.7
"""Most and least size of a superscript or index, how much lower smaller letters stand at most, and
how much higher or lower what is on the same line does, in font sizes."""


@dataclass(frozen=True)
class Style:
    """What all characters of one text object have in common.

    Attributes:
        size: in pixels.
        angle: degrees clockwise by which it is turned away from left-to-right.
        is_drawn: whether it is meant to be read.
        has_shapes: whether the file says how the characters look.
    """

    size: float
    font: Font
    angle: int
    is_drawn: bool
    has_shapes: bool


@dataclass
class Glyph:
    """Characters that are one on the page: mostly one, the two or three of a ligature."""

    text: str
    box: Box
    base: float
    style: Style


Word = list[Glyph]


def box_of(word: Word) -> Box:
    return around(glyph.box for glyph in word)


class GlyphReader:
    """Reads the characters of a page, in PDFium's order.

    Attributes:
        seen, bad, unmapped: characters, those without a meaning, and those of fonts that don't
            say what they mean: what PDFium guesses is right in many Type 3 fonts.
        hidden: words that nobody sees.
        is_scan: whether a picture fills the page, so that its text is meant to be invisible.
    """

    def __init__(
        self, raw: Any, textpage: Any, place: Placement, picture: Picture, is_scan: bool
    ) -> None:
        self.raw, self.textpage, self.place = raw, textpage, place
        self.grey = picture.mean(axis=2)  # [rows, columns]
        self.seen = self.bad = self.unmapped = self.hidden = 0
        self.is_scan = is_scan
        self._styles: dict[int, Style] = {}
        self._rect, self._matrix = raw.FS_RECTF(), raw.FS_MATRIX()
        self._doubles = [ctypes.c_double() for _ in range(4)]
        self._name, self._flags = ctypes.create_string_buffer(128), ctypes.c_int()

    def runs(self) -> Iterator[list[Word]]:
        """Yields words of each of PDFium's lines that are seen on the page."""
        for words in self._runs():
            visible = [word for word in words if word and self._is_seen(word)]
            self.hidden += sum(map(bool, words)) - len(visible)
            yield visible

    def _runs(self) -> Iterator[list[Word]]:
        words: list[Word] = [[]]
        high = 0  # the first half of a character that UTF-16 writes as two
        for index in range(self.textpage.count_chars()):
            code = self.raw.FPDFText_GetUnicode(self.textpage, index)
            if 0xD800 <= code < 0xDC00:
                high = code
                continue
            if high and 0xDC00 <= code < 0xE000:
                code = 0x10000 + (high - 0xD800) * 0x400 + code - 0xDC00
            high = 0
            text = "-" if code in HYPHENS else _character(code)
            if code in TEX_SIGNS and self._has_ink(index):
                text = TEX_SIGNS[code]
            if text in ("\r", "\n"):
                yield words
                words = [[]]
            elif text.isspace():
                words.append([])
            elif glyph := self._glyph(index, text):
                last = next((word[-1] for word in reversed(words) if word), None)
                if last is not None and _is_elsewhere(last, glyph):
                    yield words
                    words = [[]]
                if words[-1] and glyph.box == words[-1][-1].box:
                    words[-1][-1].text += text
                else:
                    words[-1].append(glyph)
        yield words

    def _glyph(self, index: int, text: str) -> Glyph | None:
        thing = self.raw.FPDFText_GetTextObject(self.textpage, index)
        if not thing:
            return None
        key = ctypes.cast(thing, ctypes.c_void_p).value or 0
        style = self._styles.get(key)
        if style is None:
            style = self._styles[key] = self._style(index, thing)
        self.seen += 1
        self.bad += text == NO_MEANING or unicodedata.category(text[0]) in ("Co", "Cn")
        self.unmapped += self.raw.FPDFText_HasUnicodeMapError(self.textpage, index) == 1
        x, y = self._doubles[:2]
        self.raw.FPDFText_GetCharOrigin(self.textpage, index, x, y)
        across, base = self.place.point(x.value, y.value)
        rect = self._rect
        self.raw.FPDFText_GetLooseCharBox(self.textpage, index, rect)
        box = self.place.box(rect.left, rect.bottom, rect.right, rect.top)
        if style.angle == 0:
            box = box[0], base - ASCENT * style.size, box[2], base + DESCENT * style.size
            if not text.isalnum():
                box = self._of_sign(index, box)
        elif style.angle % 180 == 90:
            base = across
        return Glyph(text, box, base, style)

    def _has_ink(self, index: int) -> bool:
        """Returns whether a character is drawn, and no control character that a program left in a
        text.
        """
        left, right, bottom, top = self._doubles
        has_box = self.raw.FPDFText_GetCharBox(self.textpage, index, left, right, bottom, top)
        return bool(has_box) and top.value > bottom.value and right.value > left.value

    def _of_sign(self, index: int, box: Box) -> Box:
        """Returns the box of a sign's ink if that is elsewhere: roots and large brackets of TeX's
        fonts hang below the line that they stand on.
        """
        left, right, bottom, top = self._doubles
        self.raw.FPDFText_GetCharBox(self.textpage, index, left, right, bottom, top)
        ink = self.place.box(left.value, bottom.value, right.value, top.value)
        return ink if ink[3] > ink[1] and shared_height(ink, box) < 0.5 else box

    def _style(self, index: int, thing: Any) -> Style:
        raw, matrix = self.raw, self._matrix
        size = raw.FPDFText_GetFontSize(self.textpage, index)
        x, y, scale = 1.0, 0.0, 1.0
        if raw.FPDFText_GetMatrix(self.textpage, index, matrix):
            x, y, scale = matrix.a, matrix.b, math.hypot(matrix.c, matrix.d)
        if size < 0:  # stands on its head
            size, x, y = -size, -x, -y
        raw.FPDFText_GetFontInfo(self.textpage, index, self._name, 128, self._flags)
        name = self._name.value.decode("utf-8", "replace")
        weight = raw.FPDFText_GetFontWeight(self.textpage, index)
        font = font_of(name, max(self._flags.value, 0), weight)
        is_drawn = raw.FPDFTextObj_GetTextRenderMode(thing) != INVISIBLE
        is_drawn &= size * scale >= MIN_SIZE
        has_shapes = raw.FPDFFont_GetIsEmbedded(raw.FPDFTextObj_GetFont(thing)) != 0
        angle = self.place.angle(x, y)
        return Style(size * scale * self.place.unit, font, angle, is_drawn, has_shapes)

    def _is_seen(self, word: Word) -> bool:
        """Returns whether a word is seen on the page; those of a scan's layer are meant to be
        invisible.
        """
        if not self.is_scan and not word[0].style.is_drawn:
            return False
        x0, y0, x1, y1 = (round(edge) for edge in box_of(word))
        window = self.grey[max(y0, 0) : max(y1 + 1, 0), max(x0, 0) : max(x1 + 1, 0)]
        if not window.size:
            return False
        # Letters that no font of this machine has are missing on the picture alone.
        is_drawn = word[0].style.has_shapes or ord(word[0].text[0]) < OTHER_SCRIPTS
        return not is_drawn or float(window.max() - window.min()) >= MIN_CONTRAST


def _character(code: int) -> str:
    """Returns a character; U+FFFD for none, and for control characters, which fonts have for signs
    of their own.
    """
    try:
        text = chr(code)
    except (ValueError, OverflowError):
        return NO_MEANING
    is_none = not code or unicodedata.category(text) in ("Cc", "Cs")
    return NO_MEANING if is_none and not text.isspace() else text


def _is_elsewhere(last: Glyph, glyph: Glyph) -> bool:
    """Returns whether a character is on another line than the one before it, or runs elsewhere."""
    if last.style.angle != glyph.style.angle:
        return True
    if last.style.angle % 90:
        return False
    larger, smaller = sorted((last, glyph), key=lambda first: -first.style.size)
    is_lower = smaller.base - larger.base > LOWERED * larger.style.size  # than an index is
    if smaller.style.size < SMALLEST * larger.style.size and is_lower:
        return True
    return abs(last.base - glyph.base) > LINE * larger.style.size
