"""One block at a time: its words set in lines, its Markdown, its rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from . import glyphs, lexicon, prose
from .page import CELL, UNIT, DrawnRegion, DrawnWord

SPACE = 5
"""Least pixels between two words."""
MarkedWords = Sequence[tuple[str, str]]
Box = tuple[int, int, int, int]
"""Where a block may stand: first row, rows, first unit, units."""


def set_lines(content: MarkedWords, box: Box, style: str = "text") -> tuple[DrawnWord, ...]:
    """Words from left to right, line by line; those that find no room are left out.

    No two words begin in the same visual token.
    """
    top, rows, first, units = box
    row, unit, placed = top, first, []
    for text, mark in content:
        word = DrawnWord(text, mark, row, unit, style)
        if word.right > (first + units) * UNIT and unit > first:
            row, unit = row + 1, first
            word = replace(word, row=row, unit=unit)
        if row >= top + rows or word.right > (first + units) * UNIT:
            break
        placed.append(word)
        unit = _next_unit(word)
    return tuple(placed)


def _next_unit(word: DrawnWord) -> int:
    unit = -(-(word.right + SPACE) // UNIT)
    return unit if unit * UNIT // CELL > word.column else unit + 1


def _spoken(words: Sequence[DrawnWord]) -> Iterator[str]:
    for word in words:
        yield from (word.text, word.mark) if word.mark else (word.text,)


def header(rng: np.random.Generator, box: Box) -> DrawnRegion:
    """A running head of a few words and the page's number."""
    content = [*prose.phrase(rng, 1, 2), ("page", ""), (prose.pick(rng, "#"), "")]
    words = set_lines(content, (box[0], 1, *box[2:]))
    return DrawnRegion("header", words, tuple(_spoken(words)))


def title(rng: np.random.Generator, box: Box) -> DrawnRegion:
    """A line in larger letters."""
    words = set_lines(prose.phrase(rng, 2, 5), (box[0], 1, *box[2:]), "title")
    return DrawnRegion("title", words, ("#", *_spoken(words)))


def paragraph(rng: np.random.Generator, box: Box) -> DrawnRegion:
    """Sentences; a paragraph that meets the block's end breaks off without a full stop."""
    rows = int(rng.integers(1, min(box[1], 7) + 1)) if box[1] > 1 else 1
    content: list[tuple[str, str]] = []
    while len(set_lines(content, (box[0], rows, *box[2:]))) == len(content):
        content += prose.sentence(rng)
    words = set_lines(content, (box[0], rows, *box[2:]))
    return DrawnRegion("paragraph", words, tuple(_spoken(words)))


def items(rng: np.random.Generator, box: Box) -> DrawnRegion:
    """A list, one line an item."""
    top, rows, first, units = box
    count = int(rng.integers(min(2, rows), min(rows, 5) + 1))
    words: list[DrawnWord] = []
    pieces: list[str] = []
    for row in range(top, top + count):
        dot = DrawnWord(glyphs.BULLET, "", row, first, bullet=True)
        line = set_lines(prose.phrase(rng, 2, 5), (row, 1, first + 2, units - 2))
        pieces += ["\n"] if pieces else []
        pieces += [glyphs.BULLET, *_spoken(line)]
        words += [dot, *line]
    return DrawnRegion("list", tuple(words), tuple(pieces))


def table(rng: np.random.Generator, box: Box) -> DrawnRegion:
    """A ruled table: a head row of words, below it words and numbers."""
    top, rows, first, units = box
    lines = int(rng.integers(min(2, rows), min(rows, 6) + 1))
    wide = 8 if units >= 16 and rng.random() < 0.5 else 6  # units a column
    columns = int(rng.integers(2, max(min(units // wide, 4), 2) + 1))
    words: list[DrawnWord] = []
    pieces: list[str] = []
    for row in range(lines):
        pieces += ["\n"] if pieces else []
        for column in range(columns):
            kind = "N" if row == 0 or column == 0 else "#NAY"[rng.integers(4)]
            slot = (top + row, 1, first + 1 + column * wide, wide - 1)
            cell_words = set_lines([(_fitting(rng, kind, (wide - 1) * UNIT - 2), "")], slot)
            pieces += ["|", *_spoken(cell_words)]
            words += cell_words
        pieces.append("|")
        if row == 0:
            pieces += ["\n", *["|", "---"] * columns, "|"]
    return DrawnRegion(
        "table", tuple(words), tuple(pieces), _rules(top, lines, first, columns, wide)
    )


def _fitting(rng: np.random.Generator, kind: str, pixels: int) -> str:
    word = prose.pick(rng, kind)
    while glyphs.width(word, "text") > pixels:
        word = prose.pick(rng, kind)
    return word


def _rules(top: int, lines: int, first: int, columns: int, wide: int) -> tuple[Box, ...]:
    left, right = first * UNIT, (first + columns * wide) * UNIT - 1
    up, down = top * CELL, (top + lines) * CELL - 1
    flat = [min(up + row * CELL, down) for row in range(lines + 1)]
    upright = [min(left + column * wide * UNIT, right) for column in range(columns + 1)]
    return (
        *((left, y, right + 1, y + 1) for y in flat),
        *((x, up, x + 1, down + 1) for x in upright),
    )


def formula(rng: np.random.Generator, box: Box) -> DrawnRegion:
    """Signs with the space of one visual token each, such as `x + 3 = y`."""
    top, _, first, units = box
    terms = int(rng.integers(2, 4))
    signs = [_term(rng)]
    for _ in range(terms - 1):
        signs += [("+", "-")[rng.integers(2)], _term(rng)]
    signs += ["=", _term(rng)]
    limit = units // 2
    signs = signs[: limit - (limit + 1) % 2]
    start = first + (units - 2 * len(signs)) // 4 * 2
    words = tuple(DrawnWord(sign, "", top, start + 2 * at) for at, sign in enumerate(signs))
    return DrawnRegion("formula", words, ("$$", *_spoken(words), "$$"))


def _term(rng: np.random.Generator) -> str:
    if rng.random() < 0.4:
        return str(rng.integers(100))
    return lexicon.LETTERS[rng.integers(len(lexicon.LETTERS))]


BODY: tuple[tuple[float, Callable[[np.random.Generator, Box], DrawnRegion]], ...] = (
    (0.58, paragraph),
    (0.16, items),
    (0.16, table),
    (0.10, formula),
)
"""Share and maker of each kind of body block."""


def body(rng: np.random.Generator, box: Box) -> DrawnRegion:
    """A block of any kind."""
    kind = rng.choice(len(BODY), p=[share for share, _ in BODY])
    return BODY[kind][1](rng, box)
