"""A PDF's own text layer as a draft."""

from __future__ import annotations

import time

from ..grouping import EXACT, regions_of
from ..lattice import drawn_tables
from ..lines import with_markers
from ..page import BLANK, Page
from ..regions import PAGE_FOOTER, PICTURE, TEXT, PageDraft, Region, numbered


class TextLayer:
    """Puts the words of the text layer together to lines and regions.

    Args:
        force: use a bad layer, too.
    """

    name = "text-layer"

    def __init__(self, force: bool = False) -> None:
        self.force = force

    def __call__(self, page: Page) -> PageDraft:
        began = time.perf_counter()
        problem = page.text.problem if page.text is not None else "no text layer"
        if page.text is not None and not page.text.lines and page.is_blank:
            problem = BLANK
        if page.text is None or not page.text.lines or (problem and not self.force):
            return PageDraft([], time.perf_counter() - began, self.name, page.size, problem)
        upright = [line for line in page.text.lines if not line.angle]
        tables, lines = drawn_tables(with_markers(upright), page.text.rules, page.size)
        tables += [Region(box, PICTURE) for box in page.text.illustrations]
        regions = regions_of(lines, page.size, (), EXACT, tables)
        regions = numbered([*regions, *_turned(page)])
        seconds = time.perf_counter() - began
        return PageDraft(regions, seconds, self.name, page.size, page.text.note)


MARGIN = 0.08
"""Share of a page's width at its left and right edges."""


def _turned(page: Page) -> list[Region]:
    """Returns lines that run elsewhere than the page's text, as regions: stamps in the margin and
    watermarks, which are furniture, and others such as names of axes."""
    regions = []
    for line in page.text.lines if page.text is not None else ():
        middle = (line.bbox[0] + line.bbox[2]) / 2 / page.width
        is_aside = line.angle % 90 != 0 or not MARGIN < middle < 1 - MARGIN
        if line.angle:
            label = PAGE_FOOTER if is_aside else TEXT
            regions.append(Region(line.bbox, label, 0, [line.text], confidence=line.confidence))
    return regions
