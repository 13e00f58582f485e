"""Held-out pages of the document miniature's world: pictures with their exact Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sooner.documents import Page

from ...worlds.document import page as made
from ...worlds.document import render, world

KINDS = ("two columns", "one column", "table", "list", "formula", "prose alone")
"""What pages are told apart by; one with a table and a list is of both kinds."""


@dataclass(frozen=True)
class Sheet:
    """A page and what is on it.

    Attributes:
        number: from 1.
        page: as a parser gets it.
        made: as the world made it.
        kinds: of `KINDS`.
    """

    number: int
    page: Page
    made: made.DrawnPage
    kinds: tuple[str, ...]

    @property
    def truth(self) -> str:
        """Its Markdown, as it is meant."""
        return self.made.markdown


def sample_sheets(count: int, seed: int) -> list[Sheet]:
    """`count` full pages, drawn as a scanner sees them; the first ones stay the same if there are
    more."""
    rng = np.random.default_rng([seed, 0])
    sheets = []
    for number in range(1, count + 1):
        drawn = world.sample_page(rng)
        picture = render.rgb(render.vary(render.draw(drawn), rng))
        page = Page(Path(f"{number:03}.png"), number, picture, native=drawn.size)
        sheets.append(Sheet(number, page, drawn, kinds_of(drawn)))
    return sheets


def kinds_of(page: made.DrawnPage) -> tuple[str, ...]:
    """Which of `KINDS` a page is of."""
    labels = {region.label for region in page.regions}
    middle = page.size[0] / 2
    right = any(area.box[0] >= middle for area in page.regions if area.label != "formula")
    kinds = ["two columns" if right else "one column"]
    kinds += [kind for kind in ("table", "list", "formula") if kind in labels]
    return tuple(kinds) if len(kinds) > 1 else (*kinds, "prose alone")
