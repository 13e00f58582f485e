"""A PDF's own text layer as a draft."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from ..grouping import regions_of
from ..languages import is_right_to_left
from ..lines import rows_of, with_markers
from ..page import BLANK, Line, Page
from ..regions import (
    PAGE_FOOTER,
    PICTURE,
    TABLE,
    TEXT,
    Box,
    PageDraft,
    Region,
    around,
    cell_of,
    numbered,
)
from ..tables import Cell, Table, has_spans, to_html, to_tabs

MIN_CELLS, MAX_WORDS = 3, 150
"""Cells with text that a drawn table has, and words of one; with more it is a box on the page."""

SAME_SIZE = 1.1
"""Ratio of fonts' sizes up to which two lines are of one block."""

OPEN = 3
"""Rows of drawn cells up to which one may hold several rows of a table, as in books."""

MARGIN = 0.08
"""Share of a page's width at its left and right edges."""


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
        tables, lines = drawn_tables(with_markers(upright), page.text.tables)
        tables += [Region(box, PICTURE) for box in page.text.illustrations]
        regions = regions_of(lines, page.size, (), SAME_SIZE, tables)
        regions = numbered([*regions, *_turned(page)])
        seconds = time.perf_counter() - began
        return PageDraft(regions, seconds, self.name, page.size, page.text.note)


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
            table = _table(cells, inside)
            text = to_html(table) if has_spans(table) else to_tabs(table)
            regions.append(Region(around(cells), TABLE, 0, [text], confidence=1.0))
            rest = outside
    return regions, rest


def _is_table(cells: Sequence[Box], inside: Sequence[Sequence[Line]]) -> bool:
    """Returns whether cells are those of a table: not a box on the page, nor columns whose rows
    are not drawn, as in books."""
    words = [sum(len(line.text.split()) for line in lines) for lines in inside]
    columns = {box[0] for box, lines in zip(cells, inside, strict=True) if lines}
    if sum(map(bool, words)) < MIN_CELLS or max(words) > MAX_WORDS or len(columns) < 2:
        return False
    rows: dict[float, list[Sequence[Line]]] = {}
    for box, lines in zip(cells, inside, strict=True):
        rows.setdefault(box[1], []).extend([lines] if lines else [])
    return len(rows) > OPEN or not any(map(_holds_rows, rows.values()))


def _holds_rows(cells: Sequence[Sequence[Line]]) -> bool:
    """Returns whether what is between two drawn lines is several rows: most of its cells have as
    many lines of text, beside each other."""
    counts = [len(rows_of(lines)) for lines in cells]
    whole = len(rows_of(line for lines in cells for line in lines))
    return whole > 1 and counts.count(whole) > 1


def _table(cells: Sequence[Box], inside: Sequence[Sequence[Line]]) -> Table:
    """Returns the table of drawn cells; where none is drawn, there is an empty one."""
    xs, ys = (sorted({edge for box in cells for edge in box[axis::2]}) for axis in (0, 1))
    entries: dict[tuple[int, int], Cell] = {}
    free = {(row, column) for row in range(len(ys) - 1) for column in range(len(xs) - 1)}
    for box, lines in zip(cells, inside, strict=True):
        left, top, right, bottom = (
            edges.index(edge) for edges, edge in zip((xs, ys, xs, ys), box, strict=True)
        )
        text = " ".join(line.text for row in rows_of(lines) for line in row)
        entries[top, left] = Cell(text, bottom - top, right - left)
        free -= {(row, column) for row in range(top, bottom) for column in range(left, right)}
    entries |= {square: Cell("") for square in free}
    table = [
        [
            entry
            for (top, _), entry in sorted(entries.items(), key=lambda item: item[0])
            if top == row
        ]
        for row in range(len(ys) - 1)
    ]
    texts = [line.text for lines in inside for line in lines]
    is_turned = 2 * sum(map(is_right_to_left, texts)) > len(texts)
    return [row[::-1] for row in table] if is_turned else table
