"""A PDF's own text layer as a draft."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import product

from ..grouping import regions_of, rows_of
from ..page import BLANK, Line, Page, PageText
from ..regions import Box, Label, PageDraft, Region, around, cell_of, numbered
from ..tables import Cell, Table, to_html

MIN_CELLS, MAX_WORDS = 3, 150
"""Cells with text that a drawn table has, and words of one; with more it is a box on the page."""

SAME_SIZE = 1.1
"""Ratio of fonts' sizes up to which two lines are of one block."""


class TextLayer:
    """Puts the words of a good text layer together to lines and regions."""

    name = "text-layer"

    def __call__(self, page: Page) -> PageDraft:
        began = time.perf_counter()
        text = page.text or PageText()
        problem = BLANK if not text.lines and page.is_blank and page.text else text.problem
        if problem:
            return PageDraft([], time.perf_counter() - began, self.name, page.size, problem)
        upright = [line for line in text.lines if not line.angle]
        tables, lines = drawn_tables(upright, text.tables)
        tables += [Region(box, Label.PICTURE) for box in text.illustrations]
        regions = regions_of(lines, page.size, (), SAME_SIZE, tables)
        # Stamps in the margin, watermarks, names of axes.
        regions += [
            Region(line.bbox, Label.PAGE_FOOTER, 0, [line.text], confidence=line.confidence)
            for line in text.lines
            if line.angle
        ]
        seconds = time.perf_counter() - began
        return PageDraft(numbered(regions), seconds, self.name, page.size, text.note)


def drawn_tables(
    lines: Sequence[Line], tables: Iterable[Sequence[Box]]
) -> tuple[list[Region], list[Line]]:
    """Returns tables with drawn cells, and the lines of text of none.

    Args:
        lines: of the page, in pixels.
        tables: boxes of the cells of each.
    """
    regions: list[Region] = []
    rest = list(lines)
    for cells in tables:
        inside: list[list[Line]] = [[] for _ in cells]
        outside: list[Line] = []
        for line in rest:
            number = cell_of(line.bbox, cells)
            (outside if number is None else inside[number]).append(line)
        if _is_table(cells, inside):
            text = to_html(_table(cells, inside))
            regions.append(Region(around(cells), Label.TABLE, 0, [text], confidence=1.0))
            rest = outside
    return regions, rest


def _is_table(cells: Sequence[Box], inside: Sequence[Sequence[Line]]) -> bool:
    """Returns whether cells are those of a table, and not a box on the page."""
    words = [sum(len(line.text.split()) for line in lines) for lines in inside]
    columns = {box[0] for box, lines in zip(cells, inside, strict=True) if lines}
    return sum(map(bool, words)) >= MIN_CELLS and max(words) <= MAX_WORDS and len(columns) > 1


def _table(cells: Sequence[Box], inside: Sequence[Sequence[Line]]) -> Table:
    """Returns the table of drawn cells; where none is drawn, there is an empty one."""
    xs, ys = (sorted({edge for box in cells for edge in box[axis::2]}) for axis in (0, 1))
    begins: dict[tuple[int, int], Cell | None] = {}  # `None` where a cell goes on
    for (x0, y0, x1, y1), lines in zip(cells, inside, strict=True):
        left, right, top, bottom = xs.index(x0), xs.index(x1), ys.index(y0), ys.index(y1)
        begins |= dict.fromkeys(product(range(top, bottom), range(left, right)))
        text = " ".join(line.text for row in rows_of(lines) for line in row)
        begins[top, left] = Cell(text, bottom - top, right - left)
    rows = (
        (begins.get((row, n), Cell("")) for n in range(len(xs) - 1)) for row in range(len(ys) - 1)
    )
    return [[cell for cell in row if cell is not None] for row in rows]
