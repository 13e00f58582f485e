"""Words from a PDF's characters, divided by the characters' positions alone."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from .page import Word
from .regions import Box, around, shared_height, shared_width

SPACE = 0.12
"""Free width between two letters, in font sizes, from which they belong to two words. Blanks of
justified text are 0.2 and more; poppler's pdftotext uses 0.1."""

BACK = 0.5
"""Font sizes by which a letter may begin left of where the one before it ends."""

SAME_LINE = 0.3
"""Share of the smaller box in which two letters must be beside each other, or above."""

WORD_REACH, LEAST_GAPS = 1.5, 6
"""Font sizes between two letters of one run, and gaps between letters that tell how tight it is."""

ACCENTS = {
    "`": "\u0300", "\u00b4": "\u0301", "^": "\u0302", "\u02c6": "\u0302", "~": "\u0303",
    "\u02dc": "\u0303", "\u00af": "\u0304", "\u02d8": "\u0306", "\u02d9": "\u0307",
    "\u00a8": "\u0308", "\u02da": "\u030a", "\u02dd": "\u030b", "\u02c7": "\u030c",
    "\u00b8": "\u0327", "\u02db": "\u0328",
}  # fmt: skip
"""Accents that TeX sets as letters of their own, above or below the next or the last letter."""

DOTLESS = {"\u0131": "i", "\u0237": "j"}

MONOSPACED = re.compile(r"cour|mono|typewriter|cmtt|sftt|consol|menlo|monaco|nimbusmon|fixed", re.I)
BOLD = re.compile(r"bold|black|heavy|demi|-medi|cmbx|sfbx|cmssbx|-bd", re.I)
FIXED_PITCH, FORCE_BOLD, HEAVY = 1, 1 << 18, 700
"""Bits of a font descriptor's flags (ISO 32000-1, table 123), and the least weight of
bold: PDFium guesses it from the width of stems, and says 625 for some regular fonts."""


@dataclass(frozen=True)
class Font:
    """Style of a font (bold, monospaced, ...), from the font's name, flags and weight."""

    bold: bool = False
    mono: bool = False

    @classmethod
    def told(cls, name: str, flags: int, weight: int) -> Font:
        """Args as PDFium gives them; names begin with `ABCDEF+` where a subset is embedded."""
        bold = bool(flags & FORCE_BOLD) or weight >= HEAVY or BOLD.search(name) is not None
        return cls(bold, bool(flags & FIXED_PITCH) or MONOSPACED.search(name) is not None)


REGULAR = Font()


@dataclass(frozen=True)
class Letter:
    """A character of the file.

    Attributes:
        text: one character.
        bbox: in pixels; of its font's height, and as wide as the font says it is.
        size: of its font, in pixels.
        font: what it is set in.
    """

    text: str
    bbox: Box
    size: float
    font: Font = REGULAR


def words_of(letters: Sequence[Letter]) -> list[Word]:
    """Letters put together to words, in the order of the file.

    A word ends at a blank, at a gap of `SPACE`, and where the next letter is elsewhere on the page.
    Superscripts stay with what they are attached to, accents are put on their letters.
    """
    return [_word(part) for run in _runs(letters) for part in _parts(run, _tightness(run))]


def _runs(letters: Sequence[Letter]) -> Iterator[list[Letter]]:
    """Letters up to where the next one is elsewhere on the page, or a blank is wide."""
    run: list[Letter] = []
    for letter in letters:
        if run and _is_apart(run[-1], letter, WORD_REACH):
            yield run
            run = []
        run.append(letter)
    if run:
        yield run


def _tightness(run: Sequence[Letter]) -> float:
    """Width, in font sizes, by which letters of a run overlap: some text is set that tight.

    Below 0 for letters that are set apart from each other, if blanks say where words end.
    """
    gaps = [
        (b.bbox[0] - a.bbox[2]) / max(a.size, 1.0)
        for a, b in pairwise(run)
        if not a.text.isspace() and not b.text.isspace()
    ]
    usual = median(gaps) if len(gaps) >= LEAST_GAPS else 0.0
    has_blanks = any(letter.text.isspace() for letter in run)
    return -usual if usual < 0 or has_blanks else 0.0


def _parts(run: Sequence[Letter], tightness: float) -> Iterator[list[Letter]]:
    part: list[Letter] = []
    for letter in run:
        if part and (letter.text.isspace() or _is_apart(part[-1], letter, SPACE - tightness)):
            yield part
            part = []
        if not letter.text.isspace():
            part.append(letter)
    if part:
        yield part


def _is_apart(one: Letter, other: Letter, space: float) -> bool:
    """Whether a letter does not go on where another one ends.

    Args:
        space: free width between them, in font sizes, that is too much.
    """
    a, b = one.bbox, other.bbox
    em = max(one.size, other.size, 1.0)
    if shared_height(a, b) > SAME_LINE:
        if abs(a[0] - b[0]) < 0.01 * em and shared_height(a, b) > 0.99:
            return False  # of one glyph, such as a ligature
        if abs(a[0] - b[2]) < 0.01 * em:
            return False  # upside down
        return not -max(BACK * em, a[2] - a[0]) < b[0] - a[2] < space * em
    reach = max(a[3] - a[1], a[2] - a[0])
    return not -reach < b[1] - a[3] < reach or shared_width(a, b) <= SAME_LINE


def _word(letters: Sequence[Letter]) -> Word:
    box = around(letter.bbox for letter in letters)
    fonts = [letter.font for letter in letters]
    return Word(
        _spelled(letters),
        box,
        max(letter.size for letter in letters),
        bold=2 * sum(font.bold for font in fonts) > len(fonts),
        mono=2 * sum(font.mono for font in fonts) > len(fonts),
    )


def _spelled(letters: Sequence[Letter]) -> str:
    """Text of a word, accents behind the letters that they are set on."""
    text = [letter.text for letter in letters]
    for place, letter in enumerate(letters):
        accent = ACCENTS.get(letter.text)
        if accent is None:
            continue
        for other in (place + 1, place - 1):
            if 0 <= other < len(letters) and _is_on(letter, letters[other]):
                text[other] = DOTLESS.get(text[other], text[other]) + accent
                text[place] = ""
                break
    return unicodedata.normalize("NFC", "".join(text))


def _is_on(accent: Letter, letter: Letter) -> bool:
    """Whether an accent's middle is above or below a letter."""
    middle = (accent.bbox[0] + accent.bbox[2]) / 2
    return letter.text.isalpha() and letter.bbox[0] <= middle <= letter.bbox[2]
