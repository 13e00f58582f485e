"""The text layer of a PDF page: PDFium's characters and words as lines, and what can't be trusted.

PDFium says which characters belong to a word and which words to a line; this puts right-to-left
lines into logical order, marks superscripts, and leaves out what nobody sees on the page.
"""

from __future__ import annotations

import ctypes
import math
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from types import ModuleType
from typing import Any

import numpy as np

from .illustrations import SCAN, illustrations
from .languages import are_words, is_repetitive, is_right_to_left, logical
from .page import INK, MOST_GARBLED, NO_MEANING, Line, PageText, Picture
from .pdf_annotations import with_annotations
from .pdf_fonts import ACCENTS, DOTLESS, TEX_SIGNS, Font, font_of
from .pdf_objects import drawn_boxes
from .regions import Box, Size, area, around, overlap, shared_height
from .ruled import MOST_PATHS, ruled_areas, rules_of

FINE = 1_000_000
"""Pixels of the imaginary screen on which PDFium is asked where a point of the page is."""

HYPHENS = (2, 0xFFFE)
"""PDFium's characters for a hyphen at the end of a line."""

INVISIBLE = 3
"""Text rendering mode (ISO 32000-1, table 106) that draws nothing."""

ASCENT, DESCENT = 0.8, 0.22
"""Height of a line above and below its baseline, in font sizes: what fonts say of themselves may
be several times as much."""

WORD_GAP, CELL_GAP, CODE_GAP, CODE_BLANK, PIECE_GAP = 1.3, 0.7, 6.0, 0.6, 0.6
"""In font sizes: the gaps that divide a line, one between the rules of a table and one of code, the
width of a blank in code, and the gap up to which two lines that the file lists apart are one."""

CAP_SIZE = 2.0
"""Ratio of sizes from which two pieces of a line are a drop cap and what stands beside it."""

GLUED, MADE_UP = 0.12, 0.08
"""Gaps, in font sizes, below which there is no blank: between two lines that are one, and between
words that are written from right to left."""

SMALLER, RAISED, MOST_RAISED, LOWERED, LEVEL = 0.88, 0.15, 0.6, 0.35, 0.25
"""Size of a superscript, its least and most rise, how much lower an index stands at most, and the
rise of what is on the same line, in font sizes."""

RAISED_SIGNS = "*\u2020\u2021\u00a7\u2212-+,()"
"""Signs that may stand in a superscript."""

ALL_BOLD, DOUBLED = 0.9, 0.6
"""Share of a line's letters that are bold, and of a box that another one of that text covers."""

MOSTLY, FEW = 0.6, 100
"""Share of a page's characters that run in one direction from which it is the page's, and the
number below which they may be a stamp on a scan."""

LEAST_SIZE = 2.0
"""Points below which nobody reads a text."""

OTHER_SCRIPTS = 0x250
"""The first character that PDFium's own fonts don't have."""

LEAST_CONTRAST = 12
"""Difference in brightness within a word's box below which nothing is seen there."""

PANEL = 0.001
"""Share of a page from which something that is drawn may be a panel with text on it."""

STEP = 3
"""Every so many pixels are looked at for ink."""


def page_text(pdfium: ModuleType, page: Any, picture: Picture) -> PageText:
    """Lines of a page in pixels of `picture`, with the signs of a bad layer measured."""
    textpage = page.get_textpage()
    try:
        place = Placement(pdfium, page, picture)
        images, paths = (
            [place.box(*box) for box in boxes] for boxes in drawn_boxes(pdfium.raw, page)
        )
        size = picture.shape[1], picture.shape[0]
        rules = rules_of(paths, size) if len(paths) < MOST_PATHS else []
        reader = _Reader(pdfium.raw, textpage, place, picture)
        reader.dividers = _Dividers.of(rules, size)
        reader.is_scan = any(_share(box, picture) >= SCAN for box in images)
        lines, fields = with_annotations(reader.lines(), pdfium.raw, page, place.box, place.unit)
    finally:
        textpage.close()
    return PageText(
        lines,
        reader.garbled(lines),
        _coverage(picture, [*(line.bbox for line in lines), *fields], images, paths),
        illustrations(images, lines, size),
        rules,
        _noted(reader.hidden),
    )


def _noted(hidden: int) -> str:
    count = "1 hidden word was" if hidden == 1 else f"{hidden} hidden words were"
    return f"{count} left out" if hidden else ""


def text_turn(pdfium: ModuleType, page: Any) -> int:
    """Degrees, a multiple of 90, by which a page is to be turned clockwise so that most of its
    text runs from left to right. A stamp on a scan says nothing about the scan."""
    raw, matrix = pdfium.raw, pdfium.raw.FS_MATRIX()
    textpage = page.get_textpage()
    counts = Counter[int]()
    angles: dict[int, int] = {}  # of each text object
    try:
        for index in range(textpage.count_chars()):
            thing = raw.FPDFText_GetTextObject(textpage, index)
            key = ctypes.cast(thing, ctypes.c_void_p).value if thing else None
            if key is None:
                continue
            if key not in angles:
                raw.FPDFText_GetMatrix(textpage, index, matrix)
                sign = -1 if raw.FPDFText_GetFontSize(textpage, index) < 0 else 1
                angle = math.degrees(math.atan2(sign * matrix.b, sign * matrix.a))
                angles[key] = round(angle / 90) * 90 - page.get_rotation()
            counts[angles[key] % 360] += 1
    finally:
        textpage.close()
    turn, most = max(counts.items(), key=lambda item: item[1], default=(0, 0))
    total = counts.total()
    is_stamp = total < FEW and any(page.get_objects([raw.FPDF_PAGEOBJ_IMAGE], max_depth=3))
    return turn if most > MOSTLY * total and not is_stamp else 0


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
        """A point of the page, in pixels."""
        ax, ay, bx, by = self.axes
        return self.origin[0] + x * ax + y * bx, self.origin[1] + x * ay + y * by

    def box(self, left: float, bottom: float, right: float, top: float) -> Box:
        """A box of the page, in pixels."""
        (x0, y0), (x1, y1) = self.point(left, bottom), self.point(right, top)
        return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)

    def angle(self, x: float, y: float) -> int:
        """Whole degrees clockwise from left-to-right of a direction on the page."""
        ax, ay, bx, by = self.axes
        return round(math.degrees(math.atan2(x * ay + y * by, x * ax + y * bx))) % 360

    def _device(self, x: float, y: float) -> np.ndarray:
        across, down = ctypes.c_int(), ctypes.c_int()
        self.pdfium.raw.FPDF_PageToDevice(self.page, 0, 0, FINE, FINE, 0, x, y, across, down)
        return np.array([across.value, down.value]) * self.scale


@dataclass(frozen=True)
class _Style:
    """What all characters of one text object share.

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
class _Glyph:
    """Characters that are one on the page: mostly one, the two or three of a ligature."""

    text: str
    box: Box
    base: float
    style: _Style


_Word = list[_Glyph]


class _Reader:
    """Reads the characters of a page, in PDFium's order.

    Attributes:
        seen, bad, unmapped: characters, those without a meaning, and those of fonts that don't
            say what they mean: what PDFium guesses is right in many Type 3 fonts.
        hidden: words that nobody sees.
        is_scan: whether a picture fills the page, so that its text is meant to be invisible.
        dividers: what divides lines of text that are beside each other.
    """

    def __init__(self, raw: Any, textpage: Any, place: Placement, picture: Picture) -> None:
        self.raw, self.textpage, self.place = raw, textpage, place
        self.grey = picture.mean(axis=2)  # [rows, columns]
        self.seen = self.bad = self.unmapped = self.hidden = 0
        self.is_scan = False
        self.dividers = _Dividers.of([], (1, 1))
        self._styles: dict[int, _Style] = {}
        self._rect, self._matrix = raw.FS_RECTF(), raw.FS_MATRIX()
        self._doubles = [ctypes.c_double() for _ in range(4)]
        self._name, self._flags = ctypes.create_string_buffer(128), ctypes.c_int()

    def lines(self) -> list[Line]:
        """Lines in the order of the file, those that it lists in pieces put together."""
        divide = self.dividers
        pieces = [one for words in self._runs() for one in _pieces(self._visible(words), divide)]
        return [_line(piece) for piece in _whole(_once(pieces), divide)]

    def garbled(self, lines: Sequence[Line]) -> float:
        """Share of the characters that mean nothing, from 0 to 1."""
        texts = [line.text for line in lines]
        if self.is_scan and is_repetitive(texts):
            return 1.0
        bad = self.bad / max(self.seen, 1)
        unmapped = self.unmapped / max(self.seen, 1)
        return bad if unmapped <= MOST_GARBLED or are_words(texts) else max(bad, unmapped)

    def _runs(self) -> Iterator[list[_Word]]:
        """Words of each of PDFium's lines."""
        words: list[_Word] = [[]]
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
            if code in HYPHENS and not self._has_ink(index):
                text = " "
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

    def _glyph(self, index: int, text: str) -> _Glyph | None:
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
        return _Glyph(text, box, base, style)

    def _has_ink(self, index: int) -> bool:
        """Whether a character is drawn, and no control character that a program left in a text."""
        left, right, bottom, top = self._doubles
        found = self.raw.FPDFText_GetCharBox(self.textpage, index, left, right, bottom, top)
        return bool(found) and top.value > bottom.value and right.value > left.value

    def _of_sign(self, index: int, box: Box) -> Box:
        """The box of a sign's ink if that is elsewhere: roots and large brackets of TeX's fonts
        hang below the line that they stand on."""
        left, right, bottom, top = self._doubles
        self.raw.FPDFText_GetCharBox(self.textpage, index, left, right, bottom, top)
        ink = self.place.box(left.value, bottom.value, right.value, top.value)
        return ink if ink[3] > ink[1] and shared_height(ink, box) < 0.5 else box

    def _style(self, index: int, thing: Any) -> _Style:
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
        is_drawn &= size * scale >= LEAST_SIZE
        has_shapes = raw.FPDFFont_GetIsEmbedded(raw.FPDFTextObj_GetFont(thing)) != 0
        angle = self.place.angle(x, y)
        return _Style(size * scale * self.place.unit, font, angle, is_drawn, has_shapes)

    def _visible(self, words: Sequence[_Word]) -> list[_Word]:
        """Words that are seen on the page; those of a scan's layer are meant to be invisible."""
        visible = [word for word in words if word and self._is_seen(word)]
        self.hidden += sum(map(bool, words)) - len(visible)
        return visible

    def _is_seen(self, word: _Word) -> bool:
        if not self.is_scan and not word[0].style.is_drawn:
            return False
        x0, y0, x1, y1 = (round(edge) for edge in _box(word))
        window = self.grey[max(y0, 0) : max(y1 + 1, 0), max(x0, 0) : max(x1 + 1, 0)]
        if not window.size:
            return False
        # Letters that no font of this machine has are missing on the picture alone.
        is_drawn = word[0].style.has_shapes or ord(word[0].text[0]) < OTHER_SCRIPTS
        return not is_drawn or float(window.max() - window.min()) >= LEAST_CONTRAST


def _character(code: int) -> str:
    """A character; U+FFFD for none, and for control characters, which fonts have for signs of
    their own."""
    try:
        text = chr(code)
    except (ValueError, OverflowError):
        return NO_MEANING
    is_none = not code or unicodedata.category(text) in ("Cc", "Cs")
    return NO_MEANING if is_none and not text.isspace() else text


def _is_elsewhere(last: _Glyph, glyph: _Glyph) -> bool:
    """Whether a character is on another line than the one before it, or runs elsewhere."""
    if last.style.angle != glyph.style.angle:
        return True
    if last.style.angle % 90:
        return False
    larger, smaller = sorted((last, glyph), key=lambda one: -one.style.size)
    is_lower = smaller.base - larger.base > LOWERED * larger.style.size  # than an index is
    if smaller.style.size < SMALLER * larger.style.size and is_lower:
        return True
    return abs(last.base - glyph.base) > 0.7 * larger.style.size


def _box(word: _Word) -> Box:
    return around(glyph.box for glyph in word)


@dataclass
class _Piece:
    """Words beside each other, from left to right, without a gap as between columns.

    Attributes:
        words: none of them empty.
        box: around them.
        base, size: baseline and size of most of their letters, in pixels.
    """

    words: list[_Word]
    box: Box
    base: float
    size: float

    @classmethod
    def of(cls, words: Sequence[_Word]) -> _Piece:
        glyphs = [glyph for word in words for glyph in word]
        size = Counter(glyph.style.size for glyph in glyphs).most_common(1)[0][0]
        bases = Counter(glyph.base for glyph in glyphs if glyph.style.size == size)
        return cls(list(words), around(map(_box, words)), bases.most_common(1)[0][0], size)

    @property
    def style(self) -> _Style:
        return self.words[0][0].style

    @property
    def text(self) -> str:
        return "".join(glyph.text for word in self.words for glyph in word)

    def with_piece(self, right: _Piece) -> _Piece:
        """This piece and one that goes on to the right of it."""
        words = [*self.words, *right.words]
        place = len(self.words)
        if right.box[0] - self.box[2] < GLUED * max(self.size, right.size):
            words[place - 1 : place + 1] = [[*words[place - 1], *words[place]]]
        return _Piece.of(words)


@dataclass(frozen=True)
class _Dividers:
    """What divides lines of text that are beside each other.

    Attributes:
        down: rules that are drawn from top to bottom, `[rules, 4]`.
        areas: what lies between two rules of a table, `[areas, 4]`.
    """

    down: np.ndarray
    areas: np.ndarray

    @classmethod
    def of(cls, rules: Sequence[Box], size: Size) -> _Dividers:
        down = [rule for rule in rules if rule[3] - rule[1] > rule[2] - rule[0]]
        areas = ruled_areas(rules, size)
        return cls(*(np.array(boxes).reshape(-1, 4) for boxes in (down, areas)))

    def between(self, left: Box, right: Box) -> bool:
        """Whether a rule stands between two boxes that are beside each other."""
        middle = (left[1] + left[3] + right[1] + right[3]) / 4
        x0, y0, x1, y1 = self.down.T
        low, high = (left[0] + left[2]) / 2, (right[0] + right[2]) / 2
        return bool(((low < x0) & (x1 < high) & (y0 <= middle) & (middle <= y1)).any())

    def gap(self, box: Box) -> float:
        """Font sizes that divide a line at a box."""
        x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        x0, y0, x1, y1 = self.areas.T
        is_inside = (x0 <= x) & (x <= x1) & (y0 <= y) & (y <= y1)
        return CELL_GAP if is_inside.any() else WORD_GAP


def _pieces(words: Sequence[_Word], dividers: _Dividers) -> Iterator[_Piece]:
    """Words of a line up to gaps as between columns, from left to right."""
    if not words:
        return
    if words[0][0].style.angle:
        yield _Piece.of(words)
        return
    if any(is_right_to_left(glyph.text) for word in words for glyph in word):
        words = _as_seen(words)
    words = sorted(words, key=lambda word: word[0].box[0])
    part = [words[0]]
    for word, following in pairwise(words):
        styles = word[-1].style, following[0].style
        is_code = all(style.font.mono for style in styles)
        limit = CODE_GAP if is_code else dividers.gap(following[0].box)
        gap = following[0].box[0] - _box(word)[2]
        is_wide = gap > limit * max(style.size for style in styles)
        if is_wide or dividers.between(word[-1].box, following[0].box):
            yield _Piece.of(part)
            part = []
        part.append(following)
    yield _Piece.of(part)


def _as_seen(words: Sequence[_Word]) -> list[_Word]:
    """Words from left to right, and so their letters; PDFium makes up blanks at vowel marks."""
    words = [sorted(word, key=lambda glyph: glyph.box[0] + glyph.box[2]) for word in words]
    whole: list[_Word] = []
    for word in sorted(words, key=lambda word: word[0].box[0]):
        if whole and word[0].box[0] - _box(whole[-1])[2] < MADE_UP * word[0].style.size:
            whole[-1] = sorted([*whole[-1], *word], key=lambda glyph: glyph.box[0] + glyph.box[2])
        else:
            whole.append(word)
    return whole


def _once(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Pieces without those that stand a second time at the same place: shadows, fat print that is
    drawn twice, a second layer."""
    places: dict[str, list[Box]] = {}
    single = []
    for piece in pieces:
        same = places.setdefault(piece.text, [])
        if all(overlap(piece.box, other) < DOUBLED * area(piece.box) for other in same):
            same.append(piece.box)
            single.append(piece)
    return single


def _whole(pieces: Sequence[_Piece], dividers: _Dividers) -> list[_Piece]:
    """Pieces of one line as one: links and words in another font are often listed last."""
    rows: dict[int, _Piece] = {}  # by the place of the first piece in the file
    for place in sorted(range(len(pieces)), key=lambda place: pieces[place].box[0]):
        piece = pieces[place]
        before = next((n for n, other in rows.items() if _goes_on(other, piece, dividers)), None)
        if before is None:
            rows[place] = piece
        else:
            rows[min(before, place)] = rows.pop(before).with_piece(piece)
    return [rows[place] for place in sorted(rows)]


def _goes_on(left: _Piece, right: _Piece, dividers: _Dividers) -> bool:
    size = max(left.size, right.size)
    rise = abs(left.base - right.base)
    is_mark = left.size < SMALLER * right.size and 0 < right.base - left.base < MOST_RAISED * size
    if left.style.angle or right.style.angle or (rise > LEVEL * size and not is_mark):
        return False
    if size > CAP_SIZE * min(left.size, right.size):
        return False
    is_near = -0.3 * size < right.box[0] - left.box[2] < PIECE_GAP * size
    return is_near and not dividers.between(left.box, right.box)


def _line(piece: _Piece) -> Line:
    glyphs = [glyph for word in piece.words for glyph in word]
    letters = sum(len(glyph.text) for glyph in glyphs)
    bold = sum(len(glyph.text) for glyph in glyphs if glyph.style.font.bold)
    mono = 2 * sum(len(glyph.text) for glyph in glyphs if glyph.style.font.mono) > letters
    return Line(
        _text(piece, mono),
        piece.box,
        piece.size,
        confidence=1.0,
        bold=bold > ALL_BOLD * letters,
        mono=mono,
        angle=piece.style.angle,
    )


def _text(piece: _Piece, mono: bool) -> str:
    """A line's text as one reads it; blanks of code are as many as there is room for."""
    if any(is_right_to_left(glyph.text) for word in piece.words for glyph in word):
        return logical(" ".join("".join(glyph.text for glyph in word) for word in piece.words))
    words = piece.words
    if mono:
        blank = CODE_BLANK * max(piece.size, 1.0)
        gaps = [right[0].box[0] - left[-1].box[2] for left, right in pairwise(words)]
        text = "".join(" " * max(round(gap / blank), 1) + _spelled(word)
                       for gap, word in zip([0.0, *gaps], words, strict=True)).lstrip()  # fmt: skip
    else:
        text = " ".join(_with_superscripts(word, piece) for word in words)
        text = text.replace("</sup> <sup>", " ")
    first, _, rest = text.partition(" ")
    is_sign = first == NO_MEANING or (len(first) == 1 and unicodedata.category(first) == "Co")
    return (
        f"\u2022 {rest}".strip() if is_sign else text
    )  # TeX's symbol fonts don't say what they draw


def _with_superscripts(word: _Word, piece: _Piece) -> str:
    text = ""
    for is_raised, group in groupby(word, lambda glyph: _is_raised(glyph, piece)):
        spelled = _spelled(list(group))
        text += f"<sup>{spelled}</sup>" if is_raised else spelled
    return text


def _is_raised(glyph: _Glyph, piece: _Piece) -> bool:
    """Whether a glyph is a superscript; accents and signs that stand high by themselves are not."""
    if piece.style.angle or (not glyph.text.isalnum() and glyph.text not in RAISED_SIGNS):
        return False
    rise = piece.base - glyph.base
    return glyph.style.size < SMALLER * piece.size and rise > RAISED * piece.size


def _spelled(glyphs: Sequence[_Glyph]) -> str:
    """Text of a word, accents behind the letters that they are set on."""
    text = [glyph.text for glyph in glyphs]
    for place, glyph in enumerate(glyphs):
        accent = ACCENTS.get(glyph.text)
        if accent is None:
            continue
        for other in (place + 1, place - 1):
            if 0 <= other < len(glyphs) and _is_on(glyph, glyphs[other]):
                text[other] = DOTLESS.get(text[other], text[other]) + accent
                text[place] = ""
                break
    return unicodedata.normalize("NFC", "".join(text))


def _is_on(accent: _Glyph, letter: _Glyph) -> bool:
    """Whether an accent's middle is above or below a letter."""
    middle = (accent.box[0] + accent.box[2]) / 2
    return letter.text.isalpha() and letter.box[0] <= middle <= letter.box[2]


def _share(box: Box, picture: Picture) -> float:
    return area(box) / (picture.shape[0] * picture.shape[1])


def _coverage(
    picture: Picture, texts: Sequence[Box], images: Sequence[Box], paths: Sequence[Box]
) -> float:
    """Share of the ink within boxes of text; that of illustrations, lines and panels of one colour
    does not count."""
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
