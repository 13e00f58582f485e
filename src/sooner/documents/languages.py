"""What the letters of a text say about it: their script, their order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from unicodedata import bidirectional, name, normalize

PRESENTED = re.compile("[\ufb1d-\ufdff\ufe70-\ufefc]+")
"""Forms of Hebrew and Arabic letters by their place in a word, and ligatures."""

LATIN_EDGE = re.compile("(?<=[\u05d0-\u06ff])(?=[A-Za-z])|(?<=[A-Za-z])(?=[\u05d0-\u06ff])")
"""Where a word in Latin script meets one that is written from right to left: some programs write
the blank on its other side."""

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
