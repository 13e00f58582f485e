"""A page without anything on it, and words as a text layer has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sooner.documents import Page, PageText, Word


def blank(number: int = 1, text: PageText | None = None) -> Page:
    return Page(Path("x.pdf"), number, np.full((400, 300, 3), 255, np.uint8), text=text)


def words(text: str, x: float, y: float) -> list[Word]:
    found = []
    for part in text.split():
        found.append(Word(part, (x, y, x + 5 * len(part), y + 10), 10.0))
        x += 5 * len(part) + 4
    return found
