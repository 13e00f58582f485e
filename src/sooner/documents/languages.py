"""How lines of a paragraph are joined in a language: blanks between words, and divided words."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from unicodedata import bidirectional, name, normalize

from .regions import FORMULA, LIST_ITEM, PICTURE, TABLE, Region
from .serialise import FENCE, item_texts

HYPHENS = "-\u2010\u00ad"

UNSPACED = {
    "ch": "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef",
    "ch_doc": "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef",
    "chinese_cht": "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef",
    "japan": "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef",
    "th": "\u0e00-\u0e7f",
}
"""Languages without blanks between words, and the characters between which a line ends without one.
Korean is not among them."""

PRESENTED = re.compile("[\ufb1d-\ufdff\ufe70-\ufefc]+")
"""Forms of Hebrew and Arabic letters by their place in a word, and ligatures."""

LATIN_EDGE = re.compile("(?<=[\u05d0-\u06ff])(?=[A-Za-z])|(?<=[A-Za-z])(?=[\u05d0-\u06ff])")
"""Where a word in Latin script meets one that is written from right to left: some programs write
the blank on its other side."""

UNDIVIDED = frozenset(
    {*UNSPACED, "arabic", "devanagari", "ka", "korean", "ta", "te"}
)  # fmt: skip
"""Languages whose words are not divided by hyphens at the end of a line."""


DIVIDED = re.compile(f"([^\\W\\d_]+)([{HYPHENS}])\n([a-zß-öø-ÿ]+)")
"""A word, or a compound, that is divided at the end of a line."""

WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")

COMMON, RARER = 3.0, 1.5
"""Zipf frequencies (powers of ten in a thousand million words): of both parts of a compound, and by
how much rarer the word is that they would be without a hyphen."""


def known_words(texts: Iterable[str]) -> frozenset[str]:
    """Returns words of a document, by which `with_hyphens` knows its compounds."""
    return frozenset(word.lower() for text in texts for word in WORD.findall(text))


def with_hyphens(text: str, known: Collection[str], language: str = "en") -> str:
    """Returns a text in which hyphens of compounds stand within a line, so that joining lines keeps
    them.

    Args:
        text: with the lines of the page.
        known: small letters; words that the document has elsewhere.
        language: in two letters.
    """

    def whole(match: re.Match[str]) -> str:
        before, hyphen, after = match.groups()
        start = text[: match.start()].rsplit(None, 1)[-1:]
        is_compound = bool(start) and start[0].endswith("-")  # state-of-the-art
        if hyphen == "-" and (is_compound or _is_compound(before.lower(), after, known, language)):
            return f"{before}-{after}"
        return match[0]

    return DIVIDED.sub(whole, text)


def _is_compound(before: str, after: str, known: Collection[str], language: str) -> bool:
    """Returns whether two parts are written with a hyphen, by the document's words or by usage."""
    if f"{before}{after}" in known:
        return False
    if f"{before}-{after}" in known:
        return True
    frequency = None if language in CLOSED else _frequencies(language)
    if frequency is None:
        return False
    parts = min(frequency(before), frequency(after))
    return parts >= COMMON and frequency(before + after) < parts - RARER


CLOSED = frozenset(["da", "de", "fi", "hu", "is", "nb", "nl", "no", "sv"])
"""Languages that write most compounds as one word, so that rare ones are no sign of a hyphen."""

MIN_LETTERS, MIN_KNOWN, QUOTED = 3, 0.3, 2.0
"""Letters of words that are looked at, share of them that is known in a text, and Zipf frequency of
the rarest of these."""


def are_words(texts: Iterable[str]) -> bool:
    """Returns whether texts are of words: English ones, and the many that English texts quote,
    which tells a language in Latin script from letters that stand for others.
    """
    frequency = _frequencies()
    words = [word for word in known_words(texts) if len(word) >= MIN_LETTERS]
    if frequency is None or not words:
        return False
    return sum(frequency(word) >= QUOTED for word in words) >= MIN_KNOWN * len(words)


def is_repetitive(texts: Iterable[str]) -> bool:
    """Returns whether most words are the same one or two letters again and again."""
    words = [word for text in texts for word in WORD.findall(text) if len(word) >= MIN_LETTERS]
    return 2 * sum(len(set(word)) <= len(word) / 2 for word in words) > len(words)


@cache
def _frequencies(language: str = "en") -> Callable[[str], float] | None:
    """Returns zipf frequencies of a language's words; `None` where they are not known."""
    try:
        from wordfreq import available_languages, zipf_frequency
    except ImportError:  # of the extra `ocr`
        return None
    if language not in available_languages():
        return None
    return lambda word: float(zipf_frequency(word, language))


READ_BY_DEFAULT = ("CJK", "HIRAGANA", "KATAKANA", "LATIN")
"""Scripts that OCR reads where no language is named, by the names of their letters."""


def is_read_by_default(texts: Iterable[str]) -> bool:
    """Returns whether at least half of the letters are of scripts that OCR reads by default."""
    letters = [letter for text in texts for letter in text if letter.isalpha()]
    return 2 * sum(name(letter, "").startswith(READ_BY_DEFAULT) for letter in letters) >= len(
        letters
    )


def is_right_to_left(text: str) -> bool:
    """Returns whether a letter of a text is of a script that is written from right to left."""
    return any(char > "\u0590" and bidirectional(char) in ("R", "AL") for char in text)


def logical(visual: str) -> str:
    """Returns a line's characters in the order in which they are read, presentation forms as
    letters.

    Args:
        visual: from left to right as they stand on the page.
    """
    from bidi import get_display  # of the extra `ocr`

    kinds = [bidirectional(char) for char in visual]
    letters = sum(kind in ("R", "AL") for kind in kinds)
    base = "R" if 2 * letters >= letters + kinds.count("L") else "L"
    text = str(get_display(visual, base_dir=base))  # the algorithm is its own inverse, nearly
    text = PRESENTED.sub(lambda match: normalize("NFKC", match[0]), text)
    return LATIN_EDGE.sub(" ", text)


@dataclass(frozen=True)
class Joining:
    """How a language's lines are joined.

    Args:
        language: by rapidocr's name; one that nothing is known of has blanks between words, and
            divides them.
    """

    language: str

    def region(self, region: Region) -> Region:
        """Returns a region with each paragraph, or each item of a list, of its drafts on one line.

        Tables, formulas and code stay as they are.
        """
        if region.label in (TABLE, FORMULA, PICTURE):
            return region
        join = self.items if region.label == LIST_ITEM else self.text
        return replace(region, drafts=[join(draft) for draft in region.drafts])

    def text(self, text: str) -> str:
        """Returns a text with the lines of each paragraph in one; blank lines and code stay."""
        if FENCE in text:
            return text
        if self.language not in UNDIVIDED:
            text = with_hyphens(text, ())
        parts = re.split(r"\n[ \t]*\n", text)
        return "\n\n".join(self.lines(part.split("\n")) for part in parts)

    def items(self, text: str) -> str:
        """Returns items of a list, each with its further lines on one."""
        return "\n".join(self.lines(item.split("\n")) for item in item_texts(text))

    def lines(self, lines: Sequence[str]) -> str:
        """Returns lines as one."""
        whole = ""
        for line in (text.strip() for text in lines):
            if not whole or not line:
                whole += line
            elif self._is_divided(whole, line):
                whole = whole[:-1] + line
            else:
                whole += ("" if self._is_unspaced(whole[-1], line[0]) else " ") + line
        return whole

    def _is_divided(self, before: str, line: str) -> bool:
        """Returns whether a word goes on behind a hyphen: letters before, a small letter after."""
        if self.language in UNDIVIDED or before[-1] not in HYPHENS:
            return False
        return len(before) > 1 and before[-2].isalpha() and line[0].islower()

    def _is_unspaced(self, last: str, first: str) -> bool:
        signs = UNSPACED.get(self.language)
        return signs is not None and re.fullmatch(f"[{signs}]{{2}}", last + first) is not None
