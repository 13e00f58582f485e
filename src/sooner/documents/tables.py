"""Tables as text: HTML, Markdown's pipes, OTSL, and rows of cells with tabs between them."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

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
    if OTSL.search(text):
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


def to_markdown_table(table: Table) -> str:
    """Returns pipes, or HTML where these can't say which cells go over several rows or columns."""
    is_plain = all(cell.rows == cell.columns == 1 for row in table for cell in row)
    return to_pipes(table) if is_plain else to_html(table)


def grid(table: Table) -> list[list[str]]:
    """Returns texts by row and column, all rows equally long."""
    return [
        ["" if down or right else cell.text for cell, down, right in row] for row in _squares(table)
    ]


def _squares(table: Table) -> list[list[tuple[Cell, int, int]]]:
    """Returns squares by row and column, all rows equally long: the cell that covers it, and how
    far from where that begins, down and to the right; what no cell covers is an empty one."""
    squares: dict[tuple[int, int], tuple[Cell, int, int]] = {}
    for row, cells in enumerate(table):
        column = 0
        for cell in cells:
            while (row, column) in squares:
                column += 1
            for down in range(max(cell.rows, 1)):
                for right in range(max(cell.columns, 1)):
                    squares[row + down, column + right] = cell, down, right
            column += max(cell.columns, 1)
    width = 1 + max((column for _, column in squares), default=-1)
    free = Cell(""), 0, 0
    return [[squares.get((row, n), free) for n in range(width)] for row in range(len(table))]


FILLED, EMPTY, LEFT, UP, CROSS, LINE = "fcel", "ecel", "lcel", "ucel", "xcel", "nl"
HEADERS = ("ched", "rhed", "srow")
OTSL = re.compile(rf"<({FILLED}|{EMPTY}|{LEFT}|{UP}|{CROSS}|{LINE}|{'|'.join(HEADERS)})>")
"""Marks of OTSL (Lysak et al., *Optimized Table Tokenization*, 2023): a cell with text, an empty
one, one that belongs to the cell on its left, above it, or both; the end of a row. Those of a head
of a column, of a row and of a section are of docling's DocTags."""

CONTINUED = {LEFT: (0, 1), UP: (1, 0), CROSS: (1, 1)}
"""How far up and to the left of a mark there is another one of its cell."""


def to_otsl(table: Table) -> str:
    """Returns a square a mark, row by row, without blanks between them."""
    whole = ""
    for squares in _squares(table):
        for cell, down, right in squares:
            text, mark = " ".join(cell.text.split()), FILLED
            if down or right:
                text, mark = "", CROSS if down and right else UP if down else LEFT
            whole += f"<{mark}>{text}" if text or down or right else f"<{EMPTY}>"
        whole += f"<{LINE}>"
    return whole


def from_otsl(text: str) -> Table:
    """Returns a table from its marks; a mark that continues no cell is an empty one.

    Rows may be of different lengths, and what stands in front of the first mark is left out.
    """
    lines = [OTSL.split(line)[1:] for line in text.split(f"<{LINE}>")]
    rows = [line for line in lines if line]  # of marks, each with its words behind it
    begins: dict[tuple[int, int], tuple[int, int]] = {}  # where the cell of each square does
    for row, line in enumerate(rows):
        for column, kind in enumerate(line[::2]):
            up, left = CONTINUED.get(kind, (0, 0))
            begins[row, column] = begins.get((row - up, column - left), (row, column))
    ends = {begin: square for square, begin in begins.items()}
    table: Table = [[] for _ in rows]
    for (row, column), (bottom, right) in ends.items():
        words = " ".join(rows[row][2 * column + 1].split())
        table[row].append(Cell(words, bottom - row + 1, right - column + 1))
    return table


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


HTML_ROW = re.compile(r"<tr\b[^>]*>", re.IGNORECASE)
HTML_CELL = re.compile(r"<t[dh]\b([^>]*)>(.*?)(?=</?t[dhr]\b|</table|\Z)", re.I | re.DOTALL)
SPAN = re.compile(r"""\b(row|col)span\s*=\s*["']?\s*(\d{1,4})""", re.IGNORECASE)
HTML_TAG = re.compile(r"</?[a-z][^<>]*(?:>|\Z)", re.IGNORECASE)


def _from_html(text: str) -> Table:
    """Returns rows and cells; other tags count for nothing, a missing end is forgiven."""
    rows = map(HTML_CELL.findall, HTML_ROW.split(text))
    return [[_from_html_cell(*cell) for cell in row] for row in rows if row]


def _from_html_cell(attributes: str, content: str) -> Cell:
    """Returns a cell, its spans from 1 to 1000, whatever is written there."""
    plain = html.unescape(HTML_TAG.sub("", re.sub(r"<br\b[^>]*>", " ", content, flags=re.I)))
    spans = {kind.lower(): min(max(int(n), 1), 1000) for kind, n in SPAN.findall(attributes)}
    return Cell(" ".join(plain.split()), spans.get("row", 1), spans.get("col", 1))
