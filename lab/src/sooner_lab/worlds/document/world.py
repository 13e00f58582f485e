"""Pages: a seeded generator, from one line to a full page in one or two columns.

Every line of text fills one row of visual tokens, so that no token shows two lines.
"""

from __future__ import annotations

import numpy as np

from . import blocks
from .page import CELL, UNIT, DrawnPage, DrawnRegion

PAGE = (20, 16)
"""Rows and columns of a full page: 512 x 640 pixels."""
GUTTER = 2
"""Units between two columns of text, and at both sides of the page together."""


def sample_page(rng: np.random.Generator, rows: int = PAGE[0], columns: int = PAGE[1]) -> DrawnPage:
    """A page of `rows` x `columns` visual tokens.

    Pages of fewer than six rows hold body blocks alone, as a cut-out region does.

    Raises:
        ValueError: less than one row or six columns.
    """
    if rows < 1 or columns < 6:
        raise ValueError(f"a page has at least 1 row and 6 columns, not {rows} x {columns}")
    whole = columns * CELL // UNIT
    first, units = 1, whole - 2
    regions: list[DrawnRegion] = []
    top = int(rng.integers(2)) if rows > 2 else 0
    if rows >= 6:
        for share, make in ((0.5, blocks.header), (0.8, blocks.title)):
            if rng.random() < share:
                regions.append(make(rng, (top, 1, first, units)))
                top += 2
    elif rng.random() < 0.2:
        regions.append((blocks.header, blocks.title)[rng.integers(2)](rng, (top, 1, first, units)))
        top += 2
    if rows >= 6 and columns >= 14 and rng.random() < 0.4:
        half = (units - GUTTER) // 2
        regions += _flow(rng, top, rows, first, half)
        regions += _flow(rng, top, rows, first + units - half, half)
    else:
        regions += _flow(rng, top, rows, first, units)
    return DrawnPage(rows, columns, tuple(regions))


def _flow(
    rng: np.random.Generator, top: int, rows: int, first: int, units: int
) -> list[DrawnRegion]:
    """Blocks below each other, a blank line between them, until the page is full."""
    regions = []
    while top < rows:
        region = blocks.body(rng, (top, rows - top, first, units))
        if region.words:
            regions.append(region)
            top = max(word.row for word in region.words) + 2
    return regions
