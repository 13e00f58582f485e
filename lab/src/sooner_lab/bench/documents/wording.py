"""What full pages say: prose with names and figures, tables, formulas, footnotes."""

from __future__ import annotations

import numpy as np

from ...worlds.document.prose import phrase, sentence

SYLLABLES = "ba cor den el fin gra hol ir jun kes lin mar nor ost pel qua rin sol tan ul ver win"
LETTERS = "abcdkmnpqrstuvwxyz"
RARE = 0.12
"""Share of words that no lexicon has: names, which readers and OCR spell letter by letter."""

UNITS = ("%", "kg", "mm", "°C", "km", "MW")


def rare_word(rng: np.random.Generator) -> str:
    """A name of two to four syllables."""
    parts = SYLLABLES.split()
    word = "".join(parts[rng.integers(len(parts))] for _ in range(rng.integers(2, 5)))
    return word.capitalize() if rng.random() < 0.5 else word


def prose(rng: np.random.Generator, sentences: int) -> str:
    """A paragraph."""
    told = []
    for _ in range(sentences):
        words = [_word(rng, word) + mark for word, mark in sentence(rng)]
        told.append(" ".join([words[0][:1].upper() + words[0][1:], *words[1:]]))
    return " ".join(told)


def heading(rng: np.random.Generator, least: int = 2, most: int = 5) -> str:
    """Some words without a full stop."""
    words = [word for word, _ in phrase(rng, least, most)]
    return " ".join([words[0].capitalize(), *words[1:]])


def cell(rng: np.random.Generator) -> str:
    """A cell of figures, which OCR has no context for."""
    kind = rng.integers(4)
    if kind == 0:
        return f"{rng.integers(10, 9999)}"
    if kind == 1:
        return f"{rng.uniform(0, 100):.1f}"
    if kind == 2:
        return f"{rng.uniform(0, 10):.2f} {UNITS[rng.integers(len(UNITS))]}"
    return f"{rng.integers(1, 99)},{rng.integers(100, 999)}"


def table(rng: np.random.Generator, rows: int, columns: int) -> list[list[str]]:
    """Rows of cells; the first are heads, the first of each is a name."""
    heads = ["Item", *(heading(rng, 1, 1) for _ in range(columns - 1))]
    body = [
        [rare_word(rng).capitalize(), *(cell(rng) for _ in range(columns - 1))]
        for _ in range(rows - 1)
    ]
    return [heads, *body]


def formula(rng: np.random.Generator) -> list[tuple[str, str]]:
    """Signs and how each is set: "", "_" for an index, "^" for a power."""

    def letter() -> str:
        return LETTERS[rng.integers(len(LETTERS))]

    signs: list[tuple[str, str]] = [(letter(), ""), (letter(), "_"), ("=", "")]
    for term in range(int(rng.integers(2, 5))):
        if term:
            signs.append(("+-"[rng.integers(2)], ""))
        if rng.random() < 0.5:
            signs.append((str(rng.integers(2, 20)), ""))
        signs.append((letter(), ""))
        if rng.random() < 0.7:
            signs.append((str(rng.integers(1, 10)), "_^"[rng.integers(2)]))
    return signs


def latex(signs: list[tuple[str, str]]) -> str:
    """A formula in LaTeX."""
    return (
        " ".join(f"{place}{{{sign}}}" if place else sign for sign, place in signs)
        .replace(" _", "_")
        .replace(" ^", "^")
    )


def _word(rng: np.random.Generator, word: str) -> str:
    if rng.random() >= RARE:
        return word
    return rare_word(rng) if rng.random() < 0.7 else cell(rng)
