"""Tables as text: HTML, Markdown's pipes, OTSL, and rows of cells with tabs between them."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from html.parser import HTMLParser

RULE = re.compile(r"\s*\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)*\|?\s*")
"""The line below the head of a Markdown table."""


@dataclass(frozen=True)
class Cell:
    """A cell, which may go over several rows and columns."""

    text: str
    rows: int = 1
    columns: int = 1


Table = list[list[Cell]]
"""Rows of the cells that begin in them."""


def read_table(text: str) -> Table:
    """Returns a table in whichever of the four forms `text` has; without a tab, one cell a line."""
    if is_otsl(text):
        return from_otsl(text)
    lines = [line for line in text.splitlines() if line.strip()]
    rule = next((n for n in (1, 0) if n < len(lines) and RULE.fullmatch(lines[n])), None)
    if rule is not None and all("|" in line for line in lines):
        return [_pipes(line) for n, line in enumerate(lines) if n != rule]
    if "<tr" in text.lower():
        return _from_html(text)
    return [[Cell(cell.strip()) for cell in line.split("\t")] for line in lines]


def to_html(table: Table) -> str:
    """Returns the table as HTML on one line, without a style."""
    rows = ("".join(_html_cell(cell) for cell in row) for row in table)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def to_pipes(table: Table) -> str:
    """Returns the table as Markdown; a cell that spans several stands in the first one."""
    rows = grid(table)
    if not rows:
        return ""
    head, *body = ["| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in rows]
    return "\n".join([head, "|" + " --- |" * len(rows[0]), *body])


def has_spans(table: Table) -> bool:
    """Returns whether a cell goes over several rows or columns."""
    return any(cell.rows > 1 or cell.columns > 1 for row in table for cell in row)


def to_markdown_table(table: Table) -> str:
    """Returns pipes, or HTML where these can't say which cells go over several rows or columns."""
    return to_html(table) if has_spans(table) else to_pipes(table)


def to_tabs(table: Table) -> str:
    return "\n".join("\t".join(row) for row in grid(table))


def grid(table: Table) -> list[list[str]]:
    """Returns texts by row and column, all rows equally long."""
    return [
        ["" if entry.down or entry.right else entry.cell.text for entry in row]
        for row in _laid(table)
    ]


@dataclass(frozen=True)
class _Place:
    """A square of the grid: the cell that covers it, and how far from where that begins."""

    cell: Cell
    down: int = 0
    right: int = 0


def _laid(table: Table) -> list[list[_Place]]:
    """Squares by row and column, all rows equally long; what no cell covers is an empty one."""
    places: dict[tuple[int, int], _Place] = {}
    for row, cells in enumerate(table):
        column = 0
        for cell in cells:
            while (row, column) in places:
                column += 1
            for down in range(max(cell.rows, 1)):
                for right in range(max(cell.columns, 1)):
                    places[row + down, column + right] = _Place(cell, down, right)
            column += max(cell.columns, 1)
    width = 1 + max((column for _, column in places), default=-1)
    free = _Place(Cell(""))
    return [[places.get((row, n), free) for n in range(width)] for row in range(len(table))]


FILLED, EMPTY, LEFT, UP, CROSS, LINE = "fcel", "ecel", "lcel", "ucel", "xcel", "nl"
HEADERS = ("ched", "rhed", "srow")
OTSL = re.compile(rf"<({FILLED}|{EMPTY}|{LEFT}|{UP}|{CROSS}|{LINE}|{'|'.join(HEADERS)})>")
"""Marks of OTSL (Lysak et al., *Optimized Table Tokenization*, 2023): a cell with text, an empty
one, one that belongs to the cell on its left, above it, or both; the end of a row. Those of a head
of a column, of a row and of a section are of docling's DocTags."""


def is_otsl(text: str) -> bool:
    """Returns whether a text has marks of OTSL."""
    return OTSL.search(text) is not None


def to_otsl(table: Table, head: str = FILLED) -> str:
    """Returns a square a mark, row by row, without blanks between them.

    Args:
        head: the mark of cells with text in the first row.
    """
    rows = []
    for number, places in enumerate(_laid(table)):
        filled = FILLED if number else head
        rows.append("".join(_otsl_cell(place, filled) for place in places) + f"<{LINE}>")
    return "".join(rows)


def _otsl_cell(place: _Place, filled: str) -> str:
    if place.down or place.right:
        return f"<{CROSS if place.down and place.right else UP if place.down else LEFT}>"
    text = " ".join(place.cell.text.split())
    return f"<{filled}>{text}" if text else f"<{EMPTY}>"


def from_otsl(text: str) -> Table:
    """Returns a table from its marks; a mark that continues no cell is an empty one.

    Rows may be of different lengths, and what stands in front of the first mark is left out.
    """
    marks: list[list[tuple[str, str]]] = [[]]
    parts = OTSL.split(text)
    for kind, words in zip(parts[1::2], parts[2::2], strict=True):
        if kind == LINE:
            marks.append([])
        else:
            marks[-1].append((kind, " ".join(words.split())))
    rows = [row for row in marks if row]
    used: set[tuple[int, int]] = set()
    table: Table = []
    for number, row in enumerate(rows):
        table.append([])
        for column, (_, words) in enumerate(row):
            if (number, column) in used:
                continue
            down, across = _extent(rows, used, number, column)
            used |= {(number + n, column + m) for n in range(down) for m in range(across)}
            table[-1].append(Cell(words, down, across))
    return table


def _extent(
    rows: list[list[tuple[str, str]]], used: set[tuple[int, int]], row: int, column: int
) -> tuple[int, int]:
    """Returns how many rows and columns the cell at a square has, by the marks beside and
    below it.
    """

    def mark(down: int, right: int) -> str:
        place = row + down, column + right
        is_there = place[0] < len(rows) and place[1] < len(rows[place[0]]) and place not in used
        return rows[place[0]][place[1]][0] if is_there else ""

    across = 1
    while mark(0, across) == LEFT:
        across += 1
    down = 1
    while mark(down, 0) == UP and all(mark(down, n) == CROSS for n in range(1, across)):
        down += 1
    return down, across


def _pipes(line: str) -> list[Cell]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    parts = re.split(r"(?<!\\)\|", inner)
    return [Cell(part.strip().replace("\\|", "|")) for part in parts]


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _html_cell(cell: Cell) -> str:
    spans = f' rowspan="{cell.rows}"' if cell.rows > 1 else ""
    spans += f' colspan="{cell.columns}"' if cell.columns > 1 else ""
    return f"<td{spans}>{html.escape(cell.text, quote=False)}</td>"


def _from_html(text: str) -> Table:
    reader = _TableReader()
    reader.feed(text)
    reader.close()
    reader.end_cell()
    return [row for row in reader.rows if row]


class _TableReader(HTMLParser):
    """Reads rows and cells; other tags count for nothing, a missing end is forgiven."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: Table = []
        self.text: list[str] | None = None
        self.span = (1, 1)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.end_cell()
            self.rows.append([])
        elif tag in ("td", "th"):
            self.end_cell()
            attributes = dict(attrs)
            self.span = _span(attributes.get("rowspan")), _span(attributes.get("colspan"))
            self.text = []
        elif tag == "br" and self.text is not None:
            self.text.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "tr", "table"):
            self.end_cell()

    def handle_data(self, data: str) -> None:
        if self.text is not None:
            self.text.append(data)

    def end_cell(self) -> None:
        if self.text is None:
            return
        if not self.rows:
            self.rows.append([])
        self.rows[-1].append(Cell(" ".join("".join(self.text).split()), *self.span))
        self.text = None


def _span(value: str | None) -> int:
    """A span as a number from 1 to 1000, whatever is written there."""
    return min(max(int(value), 1), 1000) if value and value.strip().isdecimal() else 1
