"""Characters of a PDF's page as PDFium tells them: where they stand, and whether they are seen."""

from __future__ import annotations

import ctypes
import math
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from .page import NO_MEANING, Picture
from .regions import Box, around

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


ACCENTS = {
    "`": "\u0300", "\u00b4": "\u0301", "^": "\u0302", "\u02c6": "\u0302", "~": "\u0303",
    "\u02dc": "\u0303", "\u00af": "\u0304", "\u02d8": "\u0306", "\u02d9": "\u0307",
    "\u00a8": "\u0308", "\u02da": "\u030a", "\u02dd": "\u030b", "\u02c7": "\u030c",
    "\u00b8": "\u0327", "\u02db": "\u0328",
}  # fmt: skip
"""Accents that TeX sets as letters of their own, above or below the next or the last letter."""

DOTLESS = {"\u0131": "i", "\u0237": "j"}

TEX_SIGNS = {
    0x0B: "ff", 0x0C: "fi", 0x0D: "fl", 0x0E: "ffi", 0x0F: "ffl",
    0x1B: "ff", 0x1C: "fi", 0x1D: "fl", 0x1E: "ffi", 0x1F: "ffl",
    0x15: "\u2013", 0x16: "\u2014",
}  # fmt: skip
"""What the codes of control characters are in TeX's fonts of old and of Cork encoding, which don't
say so where they are bitmaps."""

MONOSPACED = re.compile(r"cour|mono|typewriter|cmtt|sftt|consol|menlo|monaco|nimbusmon|fixed", re.I)
BOLD = re.compile(r"bold|black|heavy|demi|-medi|cmbx|sfbx|cmssbx|-bd", re.I)
FIXED_PITCH, FORCE_BOLD, HEAVY = 1, 1 << 18, 700
"""Bits of a font descriptor's flags (ISO 32000-1, table 123), and the least weight of
bold: PDFium guesses it from the width of stems, and says 625 for some regular fonts."""


def font_of(name: str, flags: int, weight: int) -> tuple[bool, bool]:
    """Returns whether a font is bold, and whether it is monospaced, by what PDFium says of it."""
    is_bold = bool(flags & FORCE_BOLD) or weight >= HEAVY or BOLD.search(name) is not None
    return is_bold, bool(flags & FIXED_PITCH) or MONOSPACED.search(name) is not None


FINE = 1_000_000
"""Pixels of the imaginary screen on which PDFium is asked where a point of the page is."""


class Placement:
    """Where a point of the page is in its picture: rotation and cropping are PDFium's affair."""

    def __init__(self, pdfium: ModuleType, page: Any, picture: Picture) -> None:
        height, width = picture.shape[:2]
        self.scale = np.array([width, height]) / FINE
        self.pdfium, self.page = pdfium, page
        origin, x, y = (self._device(*point) for point in ((0, 0), (1000, 0), (0, 1000)))
        (ax, ay), (bx, by) = (x - origin) / 1000, (y - origin) / 1000
        self.axes = float(ax), float(ay), float(bx), float(by)
        self.origin = float(origin[0]), float(origin[1])
        self.unit = math.hypot(self.axes[2], self.axes[3])  # pixels a point

    def point(self, x: float, y: float) -> tuple[float, float]:
        """Returns a point of the page, in pixels."""
        ax, ay, bx, by = self.axes
        return self.origin[0] + x * ax + y * bx, self.origin[1] + x * ay + y * by

    def box(self, left: float, bottom: float, right: float, top: float) -> Box:
        """Returns a box of the page, in pixels."""
        (x0, y0), (x1, y1) = self.point(left, bottom), self.point(right, top)
        return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)

    def angle(self, x: float, y: float) -> int:
        """Returns whole degrees clockwise from left-to-right of a direction on the page."""
        ax, ay, bx, by = self.axes
        return round(math.degrees(math.atan2(x * ay + y * by, x * ax + y * bx))) % 360

    def _device(self, x: float, y: float) -> np.ndarray:
        across, down = ctypes.c_int(), ctypes.c_int()
        self.pdfium.raw.FPDF_PageToDevice(self.page, 0, 0, FINE, FINE, 0, x, y, across, down)
        return np.array([across.value, down.value]) * self.scale


@dataclass(frozen=True)
class Style:
    """What all characters of one text object have in common.

    Attributes:
        size: in pixels.
        bold, mono: of a bold font, and of a monospaced one.
        angle: degrees clockwise by which it is turned away from left-to-right.
        is_drawn: whether it is meant to be read.
        has_shapes: whether the file says how the characters look.
    """

    size: float
    bold: bool
    mono: bool
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

    def runs(self) -> list[list[Word]]:
        """Returns words of each of PDFium's lines that are seen on the page.

        Where most words are not, PDFium can't draw their fonts, and all that are drawn count.
        """
        runs = [[word for word in words if word] for words in self._runs()]
        drawn = {id(w) for words in runs for w in words if self.is_scan or w[0].style.is_drawn}
        seen = {id(w) for words in runs for w in words if id(w) in drawn and self._is_seen(w)}
        shown = seen if 2 * len(seen) >= len(drawn) else drawn
        self.hidden = sum(map(len, runs)) - len(shown)
        return [[word for word in words if id(word) in shown] for words in runs]

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
        bold, mono = font_of(name, max(self._flags.value, 0), weight)
        is_drawn = raw.FPDFTextObj_GetTextRenderMode(thing) != INVISIBLE
        is_drawn &= size * scale >= MIN_SIZE
        has_shapes = raw.FPDFFont_GetIsEmbedded(raw.FPDFTextObj_GetFont(thing)) != 0
        angle = self.place.angle(x, y)
        return Style(size * scale * self.place.unit, bold, mono, angle, is_drawn, has_shapes)

    def _is_seen(self, word: Word) -> bool:
        """Returns whether there is ink in a word's place; the layer of a scan is seen on it."""
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
