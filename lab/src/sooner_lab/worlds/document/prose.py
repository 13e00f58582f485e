"""Sentences: a loose grammar over the lexicon.

The kind of the next word can often be predicted from the text, the word itself only from
the page's picture.
"""

from __future__ import annotations

import numpy as np

from . import lexicon

SHAPES = (
    "D A N V D N P D N",
    "D N V D A N",
    "D N R V N P D A N J D N V D N",
    "P D N , D N V D N",
    "N P N V D N P Y",
    "D N P D N V # A N",
    "E D A N E A , J D N V R",
    "R , D A N V D N",
    "# N V P D A N J # N V R",
    "D N V J D A N V D N P D N",
)
KINDS = {
    "N": lexicon.NOUNS, "V": lexicon.VERBS, "A": lexicon.ADJECTIVES, "R": lexicon.ADVERBS,
    "P": lexicon.PLACES, "D": lexicon.ARTICLES, "J": lexicon.JOINTS, "E": lexicon.EXTRA,
    "#": lexicon.NUMBERS, "Y": lexicon.YEARS,
}  # fmt: skip


def pick(rng: np.random.Generator, kind: str) -> str:
    """A word of one kind of `KINDS`."""
    words = KINDS[kind]
    return words[rng.integers(len(words))]


def sentence(rng: np.random.Generator) -> list[tuple[str, str]]:
    """Words with the mark behind each: "", "," or "." at the end."""
    words: list[tuple[str, str]] = []
    for sign in SHAPES[rng.integers(len(SHAPES))].split():
        if sign == ",":
            words[-1] = (words[-1][0], ",")
        else:
            words.append((pick(rng, sign), ""))
    words[-1] = (words[-1][0], ".")
    return words


def phrase(rng: np.random.Generator, minimum: int, maximum: int) -> list[tuple[str, str]]:
    """`minimum` to `maximum` words without a mark, as in titles and list items."""
    count = int(rng.integers(minimum, maximum + 1))
    return [(pick(rng, "ANNVP#RA"[rng.integers(8)]), "") for _ in range(count)]
