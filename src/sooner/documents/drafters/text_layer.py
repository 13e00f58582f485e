"""A PDF's own text as a draft: exact and free, where it is good."""

from __future__ import annotations

import time
from dataclasses import replace

from ..bullets import with_bullets
from ..grouping import EXACT, regions_of
from ..lines import lines_of, with_markers
from ..page import Page
from ..regions import PageDraft
from .base import BLANK
from .layout import Layout


class TextLayer:
    """Words of the text layer, put together to lines and regions.

    Args:
        layout: finds boxes and their labels; without, sizes and gaps must do.
        force: use a bad layer, too.
    """

    name = "text-layer"

    def __init__(self, layout: Layout | None = None, force: bool = False) -> None:
        self.layout, self.force = layout, force

    def __call__(self, page: Page) -> PageDraft:
        began = time.perf_counter()
        problem = page.text.problem if page.text is not None else "no text layer"
        if page.text is not None and not page.text.words and page.is_blank:
            problem = BLANK
        if page.text is None or not page.text.words or (problem and not self.force):
            return PageDraft([], time.perf_counter() - began, self.name, page.size, problem)
        areas = self.layout(page) if self.layout is not None else []
        words = [replace(line, confidence=1.0) for line in lines_of(page.text.words)]
        lines = with_bullets(with_markers(words), page.picture)
        regions = regions_of(lines, page.size, areas, EXACT)
        return PageDraft(regions, time.perf_counter() - began, self.name, page.size)
