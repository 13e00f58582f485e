"""The text layer of a PDF page: pdfplumber reads characters and drawn cells, which become lines of
text in the pixels of the page's picture, without what nobody sees there."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any
from unicodedata import bidirectional, category, normalize

import numpy as np

from .page import INK, NO_MEANING, Line, PageText, Picture
from .regions import Box, Size, area, around, cell_of, clipped, overlap, scaled
from .serialise import BULLETS

ASCENT, DESCENT = 0.8, 0.22
"""Height of a line above and below its baseline, in font sizes: what fonts say of themselves may
be several times as much."""

BLANK, GLUED, CODE_BLANK = 0.14, 0.12, 0.6
"""In font sizes: the gaps from which there is a blank between two letters, and between words in two
fonts; and the width of a blank in code."""

WORD_GAP, CODE_GAP, MARKER_GAP, PIECE_GAP = 1.3, 6.0, 4.0, 0.6
"""In font sizes: the gaps that divide a line, one of code, a mark and its item, and words of a line
that the file lists apart."""

SMALLER, RAISED, MAX_RAISED, LEVEL, CAP = 0.88, 0.15, 0.6, 0.25, 2.0
"""Most size of a superscript, its least and most rise, the rise of what is on the same line, and
the size of a drop cap, in font sizes of the line."""

MONOSPACED = re.compile(r"cour|mono|typewriter|cmtt|sftt|consol|menlo|monaco|nimbusmon|fixed", re.I)
BOLD = re.compile(r"bold|black|heavy|demi|-medi|cmbx|sfbx|cmssbx|-bd", re.I)
"""Names of monospaced and of bold fonts."""

LONE_MARKER = re.compile(rf"[{BULLETS}\ufffd\ue000-\uf8ff]|\(?(?:\d{{1,2}}|[a-z]|[ivx]{{1,4}})[.)]")
"""Such a beginning alone, which stands far from its item."""

UNMAPPED = re.compile(r"\(cid:(\d+)\)")
"""How pdfminer writes a character that a font does not map to Unicode."""

TEX_SIGNS = dict(zip(range(0x1B, 0x20), ("ff", "fi", "fl", "ffi", "ffl"), strict=True))
TEX_SIGNS |= dict(zip(range(0x0B, 0x10), TEX_SIGNS.values(), strict=True))
TEX_SIGNS |= {0x15: "\u2013", 0x16: "\u2014"}
"""Codes in TeX's fonts of old and of Cork encoding, which bitmap fonts don't map."""

ALL_BOLD = 0.9
"""Share of a line's letters that are bold."""

MIN_SIZE, MIN_CONTRAST = 2.0, 12
"""A font's points, and the difference in brightness within a word's box, that a reader needs."""

MAX_EDGES = 2000
"""Drawn edges of a page that are looked at for tables; with more they are a drawing."""

PANEL, SCAN = 0.001, 0.7
"""Shares of a page: from the first, something drawn may be a panel with text on it; from the
second, a picture is a scan."""

MIN_AREA, MAX_WORDS = 0.005, 30
"""Share of the page below which pictures are bullets, icons and rules, and words upon a picture:
with more it is a background."""

EDGES = itemgetter("x0", "top", "x1", "bottom")
"""Gets the box of a dictionary as pdfplumber has them."""

STEP = 3
"""Every so many pixels are looked at for ink."""


@dataclass(frozen=True)
class Word:
    """A word is what stands in one font without a gap.

    Attributes:
        text: from left to right.
        box: in pixels.
        base: baseline, in pixels from the top.
        size: of the font, in pixels.
        font: its name.
        first, last: places of its first and last letter in the file, blanks not counted.
    """

    text: str
    box: Box
    base: float
    size: float
    font: str
    first: int
    last: int


class Placement:
    """Places what pdfplumber read of a page on its picture.

    Args:
        page: of pdfplumber.
        picture: of the same page.
    """

    def __init__(self, page: Any, picture: Picture) -> None:
        self.page, self.picture = page, picture
        self.size: Size = (picture.shape[1], picture.shape[0])
        left, top, _, bottom = clipped(page.cropbox, *page.mediabox[2:])
        self.left, self.top = max(left, page.mediabox[0]), max(top, page.mediabox[1])
        self.unit = self.size[1] / max(bottom - self.top, 1e-6)  # pixels a point

    def edges(self, left: float, top: float, right: float, bottom: float) -> Box:
        """Returns a box of the page, in pixels."""
        box = left - self.left, top - self.top, right - self.left, bottom - self.top
        return scaled(box, self.unit, self.unit)

    def box(self, thing: Mapping[str, Any]) -> Box:
        """Returns the box of an object of the page, in pixels."""
        return self.edges(*EDGES(thing))

    def base(self, char: Mapping[str, Any]) -> float:
        """Returns the baseline of an upright character, in pixels from the top."""
        return (self.page.mediabox[3] - char["matrix"][5] - self.top) * self.unit

    def angle(self, char: Mapping[str, Any]) -> int:
        """Returns degrees clockwise by which a character is turned."""
        x, y = char["matrix"][:2]
        return -round(math.degrees(math.atan2(y, x))) % 360

    def is_seen(self, word: Word) -> bool:
        """Returns whether a word is large enough to be read, and there is ink in its place."""
        window = self.picture[_window(word.box, 1)]
        has_ink = window.size > 0 and float(np.ptp(window.mean(axis=2))) >= MIN_CONTRAST
        return has_ink and word.size >= MIN_SIZE * self.unit


def page_text(page: Any, picture: Picture) -> PageText:
    """Returns lines of a page of pdfplumber in pixels of its picture, with the signs of a bad layer
    measured."""
    placement = Placement(page, picture)
    chars = page.dedupe_chars(tolerance=0.5).chars
    tables = page.find_tables() if len(page.edges) <= MAX_EDGES else []
    cells = [table.cells for table in tables]
    lines, hidden = _lines(chars, [cell for table in cells for cell in table], placement)
    images = [placement.box(image) for image in page.images]
    paths = [placement.box(path) for path in (*page.rects, *page.lines, *page.curves)]
    count = "1 hidden word was" if hidden == 1 else f"{hidden} hidden words were"
    return PageText(
        lines,
        sum(_is_bad(char["text"]) for char in chars) / max(len(chars), 1),
        _coverage(picture, [line.bbox for line in lines if not line.angle], images, paths),
        illustrations(images, lines, placement.size),
        [[placement.edges(*cell) for cell in table] for table in cells],
        f"{count} left out" if hidden else "",
    )


def _is_bad(text: str) -> bool:
    """Returns whether a character has no meaning."""
    text = _mapped(text)
    return not text or text == NO_MEANING or category(text[0]) in ("Cc", "Cn", "Co")


def _lines(
    chars: Iterable[Mapping[str, Any]], cells: Sequence[Box], placement: Placement
) -> tuple[list[Line], int]:
    """Returns lines of text, and how many words nobody sees. Where most words have no ink, PDFium
    can't draw their fonts, and all of them count."""
    groups: dict[int, list[Mapping[str, Any]]] = {}
    for char in chars:
        groups.setdefault(placement.angle(char), []).append(char)
    letters = {angle: _letters(group, placement) for angle, group in groups.items()}
    words = _words(letters.pop(0, []))
    seen = list(filter(placement.is_seen, words))
    hidden = len(words) - len(seen)
    if 2 * hidden > len(words):
        hidden, seen = 0, words
    lines = lines_of(seen, [placement.edges(*cell) for cell in cells])
    for angle, group in letters.items():  # all that are turned are one
        word = _word(group)
        lines += [Line(word.text, word.box, word.size, angle=angle)] * placement.is_seen(word)
    return lines, hidden


def _letters(chars: Iterable[Mapping[str, Any]], placement: Placement) -> list[dict[str, Any]]:
    """Returns characters with their places on the picture, between the same heights in a line."""
    letters: list[dict[str, Any]] = []
    drops: dict[str, list[float]] = {}  # of boxes below the baseline, which superscripts leave
    count = 0
    for char in chars:
        left, top, right, bottom = placement.box(char)
        size, font = round(bottom - top, 1), char["fontname"]
        drops.setdefault(font, []).append((bottom - placement.base(char)) / max(size, 0.1))
        letter = {
            "text": _mapped(char["text"]), "x0": left, "x1": right, "bottom": bottom,
            "upright": True, "size": size, "fontname": font, "number": count,
        }  # fmt: skip
        letters.append(letter)
        count += not letter["text"].isspace()
    usual = {font: statistics.median(values) for font, values in drops.items()}
    for letter in letters:
        base = letter["bottom"] - usual[letter["fontname"]] * letter["size"]
        letter["top"] = letter["doctop"] = base - ASCENT * letter["size"]
        letter["bottom"] = base + DESCENT * letter["size"]
    return letters


def _words(letters: list[dict[str, Any]]) -> list[Word]:
    from pdfplumber.utils import extract_words

    parts = extract_words(
        letters, True, x_tolerance_ratio=BLANK, y_tolerance=1.0, extra_attrs=["fontname", "size"]
    )
    return [_word(part["chars"]) for part in parts]


def _word(letters: Sequence[Mapping[str, Any]]) -> Word:
    first, last = letters[0], letters[-1]
    text, size = "".join(letter["text"] for letter in letters), first["size"]
    box, base = around(map(EDGES, letters)), first["top"] + ASCENT * size
    return Word(text, box, base, size, first["fontname"], first["number"], last["number"])


def _mapped(text: str) -> str:
    """Returns a character: ligatures as their letters from left to right, codes that a font does
    not map as what they mean in TeX."""
    unmapped = UNMAPPED.fullmatch(text)
    if unmapped is not None:
        return TEX_SIGNS.get(int(unmapped[1]), NO_MEANING)
    if "\ufb00" <= text <= "\ufb06":
        return normalize("NFKC", text)
    return text[::-1] if is_right_to_left(text) else text


def lines_of(words: Sequence[Word], cells: Sequence[Box]) -> list[Line]:
    """Returns lines in the order of the file, with what it lists apart where it stands.

    Args:
        words: that run from left to right.
        cells: of drawn tables; a line is in one of them.
    """
    groups: dict[int | None, list[list[Word]]] = {}
    for word in sorted(words, key=lambda word: word.box[0]):
        rows = groups.setdefault(cell_of(word.box, cells), [])
        row = next((row for row in reversed(rows) if _goes_on(row, word)), [])
        if not row:
            rows.append(row)
        row.append(word)
    in_order = sorted(chain(*groups.values()), key=lambda row: min(word.first for word in row))
    return list(map(_line, in_order))


def _goes_on(row: Sequence[Word], right: Word) -> bool:
    """Returns whether a word is on the line of others, to their right."""
    left = row[-1]
    small, large = sorted((left, right), key=lambda word: word.size)
    rise, size = large.base - small.base, large.size
    is_item = len(row) == 1 and LONE_MARKER.fullmatch(left.text) is not None
    is_mark = small.size < SMALLER * size and 0 < rise < MAX_RAISED * size
    level = MAX_RAISED if is_item else LEVEL
    if size > CAP * small.size or not (is_mark or abs(rise) <= level * size):
        return False
    is_code = all(MONOSPACED.search(word.font) for word in (left, right))
    limit = CODE_GAP if is_code else WORD_GAP
    if is_item:
        limit = MARKER_GAP
    elif right.first != left.last + 1:
        limit = PIECE_GAP
    return -0.3 * size < right.box[0] - left.box[2] < limit * size


def _line(words: Sequence[Word]) -> Line:
    letters = sum(len(word.text) for word in words)
    size, base = statistics.mode((word.size, word.base) for word in words for _ in word.text or " ")
    bold = sum(len(word.text) for word in words if BOLD.search(word.font))
    mono = sum(len(word.text) for word in words if MONOSPACED.search(word.font))
    is_mono = 2 * mono > letters
    text = _text(words, size, base, CODE_BLANK * max(size, 1.0) if is_mono else 0.0)
    box = around(word.box for word in words)
    return Line(text, box, size, 1.0, bold=bold > ALL_BOLD * letters, mono=is_mono)


def _text(words: Sequence[Word], size: float, base: float, blank: float) -> str:
    """Returns the text of a line's words in the order in which it is read.

    Most of its letters have that size and baseline. Code has as many blanks of the width `blank` as
    there is room for; for other text that is 0.
    """
    text = ""
    is_turned = any(is_right_to_left(word.text) for word in words)
    for before, word in zip([None, *words], words, strict=False):
        if before is not None:
            gap = word.box[0] - before.box[2]
            is_same = (before.font, before.base, before.size) == (word.font, word.base, word.size)
            if is_same or gap >= GLUED * size:
                text += " " * (max(round(gap / blank), 1) if blank else 1)
        is_raised = word.size < SMALLER * size and base - word.base > RAISED * size
        is_mark = is_raised and not (is_turned or blank or LONE_MARKER.fullmatch(word.text))
        text += f"<sup>{word.text}</sup>" if is_mark else word.text
    text = logical(text) if is_turned else re.sub("</sup>( ?)<sup>", r"\1", text)
    first, _, rest = text.partition(" ")
    is_sign = first == NO_MEANING or (len(first) == 1 and category(first) == "Co")
    return f"\u2022 {rest}".strip() if is_sign else text  # symbol fonts don't say what they draw


def illustrations(boxes: Iterable[Box], lines: Sequence[Line], size: Size) -> list[Box]:
    """Returns those boxes of a page's raster pictures that can be shown by themselves, as far as
    they are on the page; `lines` are its text, and `size` is its width and height."""
    pictures = []
    for box in (clipped(box, *size) for box in boxes):
        upon = sum(len(line.text.split()) for line in lines if overlap(line.bbox, box) > 0)
        if MIN_AREA <= area(box) / (size[0] * size[1]) < SCAN and upon <= MAX_WORDS:
            pictures.append(box)
    return pictures


def _coverage(
    picture: Picture, texts: Sequence[Box], images: Sequence[Box], paths: Sequence[Box]
) -> float:
    """Returns share of the ink within boxes of text; that of illustrations, lines and panels of one
    colour does not count.
    """
    whole = picture.shape[0] * picture.shape[1]
    grey = picture[::STEP, ::STEP].mean(axis=2)  # [rows, columns]
    ink = np.abs(grey - np.median(grey)) > INK
    for box in paths:
        window = _window(box)
        if PANEL < area(box) / whole < SCAN and ink[window].any():
            ink[window] = np.abs(grey[window] - np.median(grey[window])) > INK
            panel = ink[window]  # without its border
            panel[:2] = panel[-2:] = panel[:, :2] = panel[:, -2:] = False
    thin = (box for box in paths if min(box[2] - box[0], box[3] - box[1]) <= STEP)
    for box in (*thin, *(box for box in images if area(box) / whole < SCAN)):
        ink[_window(box)] = False
    if not ink.any():
        return 1.0 if texts else 0.0
    inside = np.zeros_like(ink)
    for box in texts:
        inside[_window(box)] = True
    return float((ink & inside).sum() / ink.sum())


def _window(box: Box, step: int = STEP) -> tuple[slice, slice]:
    x0, y0, x1, y1 = (round(edge / step) for edge in box)
    return slice(max(y0, 0), max(y1 + 1, 0)), slice(max(x0, 0), max(x1 + 1, 0))


def is_right_to_left(text: str) -> bool:
    """Returns whether a letter of a text is of a script that is written from right to left."""
    return any(char > "\u0590" and bidirectional(char) in ("R", "AL") for char in text)


def logical(visual: str) -> str:
    """Returns a line's characters, which stand from left to right, in the order in which they are
    read, presentation forms as letters."""
    from bidi import get_display  # of the extra `ocr`

    kinds = [bidirectional(char) for char in visual]
    letters = sum(kind in ("R", "AL") for kind in kinds)
    base = "R" if 2 * letters >= letters + kinds.count("L") else "L"
    text = str(get_display(visual, base_dir=base))  # the algorithm is its own inverse, nearly
    return normalize("NFKC", text)  # presentation forms as letters
