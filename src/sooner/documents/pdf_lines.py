"""Lines of a PDF's page out of its characters: where a line ends, what is one, and how it reads."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from .languages import is_right_to_left, logical
from .page import NO_MEANING, Line
from .pdf_glyphs import ACCENTS, DOTLESS, SMALLER, Glyph, Style, Word, box_of
from .regions import Box, around

WORD_GAP, CODE_GAP, CODE_BLANK, PIECE_GAP = 1.3, 6.0, 0.6, 0.6
"""In font sizes: the gaps that divide a line and one of code, the width of a blank in code, and the
gap up to which two lines that the file lists apart are one."""

CAP_SIZE = 2.0
"""Ratio of sizes from which two pieces of a line are a drop cap and what stands beside it."""

GLUED, MADE_UP = 0.12, 0.08
"""Gaps, in font sizes, below which there is no blank: between two lines that are one, and between
words that are written from right to left."""

RAISED, MAX_RAISED, LEVEL = 0.15, 0.6, 0.25
"""The least and most rise of a superscript, and the rise of what is on the same line, in font
sizes."""

RAISED_SIGNS = "*\u2020\u2021\u00a7\u2212-+,()"
"""Signs that may stand in a superscript."""

ALL_BOLD = 0.9
"""Share of a line's letters that are bold."""


def lines_of(runs: Iterable[Sequence[Word]], dividers: Sequence[Box]) -> list[Line]:
    """Returns lines in the order of the file, those that it lists in pieces put together.

    Args:
        runs: words of each of PDFium's lines.
        dividers: rules from top to bottom, which divide lines that are beside each other.
    """
    pieces = [piece for words in runs for piece in _pieces(words, dividers)]
    return [_line(piece) for piece in _whole(pieces, dividers)]


@dataclass
class Piece:
    """Words that stand beside each other, from left to right, without a gap as between columns.

    Attributes:
        words: none of them empty.
        box: around them.
        base, size: baseline and size of most of their letters, in pixels.
    """

    words: list[Word]
    box: Box
    base: float
    size: float

    @classmethod
    def of(cls, words: Sequence[Word]) -> Piece:
        glyphs = [glyph for word in words for glyph in word]
        size = Counter(glyph.style.size for glyph in glyphs).most_common(1)[0][0]
        bases = Counter(glyph.base for glyph in glyphs if glyph.style.size == size)
        return cls(list(words), around(map(box_of, words)), bases.most_common(1)[0][0], size)

    @property
    def style(self) -> Style:
        return self.words[0][0].style

    @property
    def text(self) -> str:
        return "".join(glyph.text for word in self.words for glyph in word)

    def with_piece(self, right: Piece) -> Piece:
        """This piece and one that goes on to the right of it."""
        words = [*self.words, *right.words]
        place = len(self.words)
        if right.box[0] - self.box[2] < GLUED * max(self.size, right.size):
            words[place - 1 : place + 1] = [[*words[place - 1], *words[place]]]
        return Piece.of(words)


def _is_divided(left: Box, right: Box, dividers: Sequence[Box]) -> bool:
    """Returns whether a rule stands between two boxes that are beside each other."""
    middle = (left[1] + left[3] + right[1] + right[3]) / 4
    low, high = (left[0] + left[2]) / 2, (right[0] + right[2]) / 2
    return any(low < x0 and x1 < high and y0 <= middle <= y1 for x0, y0, x1, y1 in dividers)


def _pieces(words: Sequence[Word], dividers: Sequence[Box]) -> Iterator[Piece]:
    """Yields words of a line up to gaps as between columns, from left to right."""
    if not words:
        return
    if words[0][0].style.angle:
        yield Piece.of(words)
        return
    if any(is_right_to_left(glyph.text) for word in words for glyph in word):
        words = _as_seen(words)
    words = sorted(words, key=lambda word: word[0].box[0])
    part = [words[0]]
    for word, following in pairwise(words):
        styles = word[-1].style, following[0].style
        is_code = all(style.mono for style in styles)
        limit = CODE_GAP if is_code else WORD_GAP
        gap = following[0].box[0] - box_of(word)[2]
        is_wide = gap > limit * max(style.size for style in styles)
        if is_wide or _is_divided(word[-1].box, following[0].box, dividers):
            yield Piece.of(part)
            part = []
        part.append(following)
    yield Piece.of(part)


def _as_seen(words: Sequence[Word]) -> list[Word]:
    """Returns words from left to right, and so their letters; PDFium makes up blanks at vowel
    marks.
    """
    words = [sorted(word, key=lambda glyph: glyph.box[0] + glyph.box[2]) for word in words]
    whole: list[Word] = []
    for word in sorted(words, key=lambda word: word[0].box[0]):
        if whole and word[0].box[0] - box_of(whole[-1])[2] < MADE_UP * word[0].style.size:
            whole[-1] = sorted([*whole[-1], *word], key=lambda glyph: glyph.box[0] + glyph.box[2])
        else:
            whole.append(word)
    return whole


def _whole(pieces: Sequence[Piece], dividers: Sequence[Box]) -> list[Piece]:
    """Returns pieces of one line as one: links and words in another font are often listed last."""
    rows: dict[int, Piece] = {}  # by the place of the first piece in the file
    for place in sorted(range(len(pieces)), key=lambda place: pieces[place].box[0]):
        piece = pieces[place]
        before = next((n for n, other in rows.items() if _goes_on(other, piece, dividers)), None)
        if before is None:
            rows[place] = piece
        else:
            rows[min(before, place)] = rows.pop(before).with_piece(piece)
    return [rows[place] for place in sorted(rows)]


def _goes_on(left: Piece, right: Piece, dividers: Sequence[Box]) -> bool:
    size = max(left.size, right.size)
    rise = abs(left.base - right.base)
    is_mark = left.size < SMALLER * right.size and 0 < right.base - left.base < MAX_RAISED * size
    if left.style.angle or right.style.angle or (rise > LEVEL * size and not is_mark):
        return False
    if size > CAP_SIZE * min(left.size, right.size):
        return False
    is_near = -0.3 * size < right.box[0] - left.box[2] < PIECE_GAP * size
    return is_near and not _is_divided(left.box, right.box, dividers)


def _line(piece: Piece) -> Line:
    glyphs = [glyph for word in piece.words for glyph in word]
    letters = sum(len(glyph.text) for glyph in glyphs)
    bold = sum(len(glyph.text) for glyph in glyphs if glyph.style.bold)
    mono = 2 * sum(len(glyph.text) for glyph in glyphs if glyph.style.mono) > letters
    return Line(
        _text(piece, mono),
        piece.box,
        piece.size,
        confidence=1.0,
        bold=bold > ALL_BOLD * letters,
        mono=mono,
        angle=piece.style.angle,
    )


def _text(piece: Piece, mono: bool) -> str:
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


def _with_superscripts(word: Word, piece: Piece) -> str:
    text = ""
    for is_raised, group in groupby(word, lambda glyph: _is_raised(glyph, piece)):
        spelled = _spelled(list(group))
        text += f"<sup>{spelled}</sup>" if is_raised else spelled
    return text


def _is_raised(glyph: Glyph, piece: Piece) -> bool:
    """Returns whether a glyph is a superscript; accents and signs that stand high by themselves are
    not.
    """
    if piece.style.angle or (not glyph.text.isalnum() and glyph.text not in RAISED_SIGNS):
        return False
    rise = piece.base - glyph.base
    return glyph.style.size < SMALLER * piece.size and rise > RAISED * piece.size


def _spelled(glyphs: Sequence[Glyph]) -> str:
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


def _is_on(accent: Glyph, letter: Glyph) -> bool:
    """Returns whether an accent's middle is above or below a letter."""
    middle = (accent.box[0] + accent.box[2]) / 2
    return letter.text.isalpha() and letter.box[0] <= middle <= letter.box[2]
