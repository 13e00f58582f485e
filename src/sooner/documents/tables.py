"""Tables as text: HTML, Markdown's pipes, and rows of cells with tabs between them."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
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
    """A table in whichever of the three forms `text` has; without a tab, one cell a line."""
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and all("|" in line for line in lines) and any(RULE.fullmatch(line) for line in lines):
        return [_pipes(line) for line in lines if not RULE.fullmatch(line)]
    if "<tr" in text.lower():
        return _from_html(text)
    return [[Cell(cell.strip()) for cell in line.split("\t")] for line in lines]


def to_html(table: Table) -> str:
    """On one line, without a style."""
    rows = ("".join(_html_cell(cell) for cell in row) for row in table)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def to_pipes(table: Table) -> str:
    """Markdown; a cell that spans several stands in the first one."""
    rows = grid(table)
    if not rows:
        return ""
    head, *body = ["| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in rows]
    return "\n".join([head, "|" + " --- |" * len(rows[0]), *body])


def to_tabs(table: Table) -> str:
    return "\n".join("\t".join(row) for row in grid(table))


def grid(table: Table) -> list[list[str]]:
    """Texts by row and column, all rows equally long."""
    places: dict[tuple[int, int], str] = {}
    for row, cells in enumerate(table):
        column = 0
        for cell in cells:
            while (row, column) in places:
                column += 1
            for down in range(max(cell.rows, 1)):
                for right in range(max(cell.columns, 1)):
                    places[row + down, column + right] = "" if down or right else cell.text
            column += max(cell.columns, 1)
    width = 1 + max((column for _, column in places), default=-1)
    return [[places.get((row, n), "") for n in range(width)] for row in range(len(table))]


def from_rows(rows: Sequence[Sequence[str]]) -> Table:
    return [[Cell(text) for text in row] for row in rows]


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
            given = dict(attrs)
            self.span = _span(given.get("rowspan")), _span(given.get("colspan"))
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
