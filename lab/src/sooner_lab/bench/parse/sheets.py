"""Held-out pages of the document miniature's world: pictures with their exact Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sooner.documents import Page, PageDraft, Region
from sooner.documents.regions import FORMULA, LIST_ITEM, PAGE_HEADER, TABLE, TEXT, TITLE

from ...worlds.document import page as made
from ...worlds.document import render, world

STREAMS = ("arms", "document", "exactness", "quality", "overhead")
"""Each part has pages of its own."""

KINDS = ("two columns", "one column", "table", "list", "formula", "prose alone")
"""What pages are told apart by; one with a table and a list is of both kinds."""

_LABELS = {
    **{"header": PAGE_HEADER, "title": TITLE, "paragraph": TEXT},
    **{"list": LIST_ITEM, "table": TABLE, "formula": FORMULA},
}


@dataclass(frozen=True)
class Sheet:
    """A page and what is on it.

    Attributes:
        number: in its part, from 1.
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


def sample_sheets(count: int, part: str, seed: int) -> list[Sheet]:
    """`count` full pages, drawn as a scanner sees them; the first ones stay the same if there are
    more."""
    rng = np.random.default_rng([seed, STREAMS.index(part)])
    sheets = []
    for number in range(1, count + 1):
        drawn = world.sample_page(rng)
        picture = render.rgb(render.vary(render.draw(drawn), rng))
        page = Page(Path(f"{part}-{number:03}.png"), number, picture, native=drawn.size)
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


def oracle(sheet: Sheet) -> PageDraft:
    """The page's true regions, as a drafter without errors would give them."""
    return PageDraft(_regions(sheet.made.regions), 0.0, "truth", sheet.page.size)


def _regions(regions: Sequence[made.DrawnRegion]) -> list[Region]:
    return [
        Region(
            tuple(float(side) for side in region.box),  # type: ignore[arg-type]
            _LABELS[region.label],
            order,
            [_bare(region)],
            1 if region.label == "title" else 0,
        )
        for order, region in enumerate(regions)
    ]


def _bare(region: made.DrawnRegion) -> str:
    """Its text without Markdown's signs, which a target's form puts back."""
    if region.label == "title":
        return region.text.removeprefix("# ")
    return region.text.strip("$ ") if region.label == "formula" else region.text
