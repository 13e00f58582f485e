"""Cells of tables and what stands beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sooner.documents.tables import read_table

from ..libraries import needed
from .blocks import read_blocks

Side = Literal["up", "down", "left", "right"]

STEPS: Mapping[Side, tuple[int, int]] = {
    "up": (-1, 0),
    "down": (1, 0),
    "left": (0, -1),
    "right": (0, 1),
}
MAX_SPAN = 1000


@dataclass(eq=False)
class TableCell:
    """A cell.

    Attributes:
        text: its words, single blanks between them.
        is_heading: `th` of HTML, or in the first row of a Markdown table.
        places: rows and columns that it takes.
    """

    text: str
    is_heading: bool
    places: list[tuple[int, int]] = field(default_factory=list)


class CellTable:
    """A table by its cells.

    Args:
        rows: of `(text, is_heading, rows, columns)` for each cell that begins in them.
    """

    def __init__(self, rows: list[list[tuple[str, bool, int, int]]]) -> None:
        self.cells: list[TableCell] = []
        self._at: dict[tuple[int, int], TableCell] = {}
        for row, specs in enumerate(rows):
            column = 0
            for text, is_heading, down, across in specs:
                while (row, column) in self._at:
                    column += 1
                self._place(TableCell(text, is_heading), row, column, down, across, len(rows))
                column += across

    def _place(
        self, cell: TableCell, row: int, column: int, down: int, across: int, height: int
    ) -> None:
        self.cells.append(cell)
        for r in range(row, min(row + down, height)):
            for c in range(column, column + across):
                if (r, c) not in self._at:
                    self._at[r, c] = cell
                    cell.places.append((r, c))

    def neighbours(self, cell: TableCell, side: Side) -> list[TableCell]:
        """Cells that touch a side of a cell; none at the table's edge."""
        down, across = STEPS[side]
        neighbours = (self._at.get((row + down, column + across)) for row, column in cell.places)
        return list(
            dict.fromkeys(
                neighbour
                for neighbour in neighbours
                if neighbour is not None and neighbour is not cell
            )
        )

    def headings(self, cell: TableCell, side: Side) -> list[TableCell]:
        """Heading cells on the way from a cell to the table's edge; without any, those there."""
        seen, ends, ahead = dict[TableCell, None](), list[TableCell](), [cell]
        while ahead:
            current = ahead.pop()
            if current in seen:
                continue
            seen[current] = None
            following = self.neighbours(current, side)
            ahead += following
            if not following and current is not cell:
                ends.append(current)
        return [current for current in seen if current.is_heading and current is not cell] or ends


def tables_of(markdown: str, with_pipes: bool = True) -> Iterator[CellTable]:
    """Tables of a page, in HTML and with Markdown's pipes.

    Raises:
        SoonerError: lxml is not installed.
    """
    for block in read_blocks(markdown):
        if block.kind != "table":
            continue
        if "<t" in block.text.lower():
            yield from _html_tables(block.text)
        elif with_pipes:
            rows = read_table(block.text)
            yield CellTable(
                [[(cell.text, n == 0, 1, 1) for cell in row] for n, row in enumerate(rows)]
            )


def _html_tables(text: str) -> Iterator[CellTable]:
    document = needed("lxml.html", "reading tables").fromstring(f"<div>{text}</div>")
    for table in document.iter("table"):
        rows = [row for row in table.iter("tr") if next(row.iterancestors("table")) is table]
        yield CellTable([[_spec(cell) for cell in row.iterchildren("td", "th")] for row in rows])


def _spec(cell: Any) -> tuple[str, bool, int, int]:
    for end in cell.iter("br"):
        end.tail = f" {end.tail or ''}"
    text = " ".join(cell.text_content().split())
    return text, cell.tag == "th", _span(cell, "rowspan"), _span(cell, "colspan")


def _span(cell: Any, name: str) -> int:
    value = (cell.get(name) or "").strip()
    return min(max(int(value), 1), MAX_SPAN) if value.isdecimal() else 1
