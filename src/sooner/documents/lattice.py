"""Tables whose cells are drawn: a lattice of lines, of which some are missing where a cell goes
over several rows or columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from .languages import is_right_to_left
from .lines import rows_of
from .page import Line
from .regions import TABLE, Box, Region, Size, around
from .ruled import NEAR
from .tables import Cell, Table, has_spans, to_html, to_tabs

MOST = 1000
"""Rules of a page that are looked at; with more they are a drawing."""

COVERED = 0.6
"""Share of a cell's side that is drawn where a neighbour begins."""

LEAST_CELLS, MOST_WORDS = 3, 150
"""Cells with text that a table has, and words of one; with more it is a box on the page."""

OPEN = 4
"""Lines from left to right of a table up to which several of its rows may stand between two."""

Square = tuple[int, int]
"""Row and column of a lattice."""


def lattice_tables(
    lines: Sequence[Line], rules: Sequence[Box], size: Size
) -> tuple[list[Region], list[Line]]:
    """Tables between drawn lines, and the lines of text of none.

    Args:
        lines: of the page, in pixels.
        rules: those of `rules_of`.
        size: of the page.
    """
    near = NEAR * max(size)
    tables: list[Region] = []
    rest = list(lines)
    for group in _connected(rules[:MOST], near):
        lattice = _Lattice.of(group, near)
        if lattice is None:
            continue
        inside = [line for line in rest if lattice.square(line) is not None]
        table = lattice.table(inside)
        if table is not None:
            text = to_html(table) if has_spans(table) else to_tabs(table)
            tables.append(Region(lattice.box, TABLE, 0, [text], confidence=1.0))
            used = set(map(id, inside))
            rest = [line for line in rest if id(line) not in used]
    return tables, rest


def _connected(rules: Sequence[Box], near: float) -> list[list[Box]]:
    """Rules that touch each other, directly or by others."""
    groups: list[list[Box]] = []
    for rule in rules:
        touching = [group for group in groups if any(_touch(rule, one, near) for one in group)]
        groups = [group for group in groups if not any(group is one for one in touching)]
        groups.append([rule, *(one for group in touching for one in group)])
    return groups


def _touch(a: Box, b: Box, near: float) -> bool:
    across = min(a[2], b[2]) - max(a[0], b[0])
    return across >= -near and min(a[3], b[3]) - max(a[1], b[1]) >= -near


@dataclass(frozen=True)
class _Lattice:
    """Lines that cross each other.

    Attributes:
        xs, ys: where columns and rows begin and end, in pixels.
        across, down: the lines from left to right, and from top to bottom.
        near: pixels by which they may miss each other.
    """

    xs: list[float]
    ys: list[float]
    across: list[Box]
    down: list[Box]
    near: float

    @classmethod
    def of(cls, rules: Sequence[Box], near: float) -> _Lattice | None:
        """The lattice of rules that touch each other; `None` if it has one row or one column."""
        across = [box for box in rules if box[2] - box[0] > box[3] - box[1]]
        down = [box for box in rules if box[2] - box[0] <= box[3] - box[1]]
        if not across or not down:
            return None
        left, top, right, bottom = around(rules)
        xs = _places([left, right, *((box[0] + box[2]) / 2 for box in down)], near)
        ys = _places([top, bottom, *((box[1] + box[3]) / 2 for box in across)], near)
        return cls(xs, ys, across, down, near) if min(len(xs), len(ys)) > 2 else None

    @property
    def box(self) -> Box:
        return self.xs[0], self.ys[0], self.xs[-1], self.ys[-1]

    def square(self, line: Line) -> Square | None:
        """Where the middle of a line of text is."""
        x, y = (line.bbox[0] + line.bbox[2]) / 2, (line.bbox[1] + line.bbox[3]) / 2
        if not (self.xs[0] <= x <= self.xs[-1] and self.ys[0] <= y <= self.ys[-1]):
            return None
        row = sum(edge < y for edge in self.ys[1:-1])
        return row, sum(edge < x for edge in self.xs[1:-1])

    def table(self, lines: Sequence[Line]) -> Table | None:
        """The table with these lines in its cells; `None` if that is none."""
        cells = self._cells()
        inside: dict[Square, list[Line]] = {}
        for line in lines:
            square = self.square(line)
            if square is not None:
                inside.setdefault(cells[square], []).append(line)
        words = [sum(len(line.text.split()) for line in found) for found in inside.values()]
        if len(words) < LEAST_CELLS or max(words) > MOST_WORDS:
            return None
        if len({column for _, column in inside}) < 2:
            return None
        table = self._filled(cells, inside)
        is_turned = 2 * sum(is_right_to_left(line.text) for line in lines) > len(lines)
        return mirrored(table) if is_turned else table

    def _cells(self) -> dict[Square, Square]:
        """The first square of the cell that each square is part of."""
        first: dict[Square, Square] = {}
        for row, (top, bottom) in enumerate(pairwise(self.ys)):
            for column, (left, right) in enumerate(pairwise(self.xs)):
                first[row, column] = row, column
                is_open = column and not _is_drawn(self.down, 1, left, top, bottom, self.near)
                if is_open:
                    first[row, column] = first[row, column - 1]
                if row and not _is_drawn(self.across, 0, top, left, right, self.near):
                    above = first[row - 1, column]
                    # A cell goes on below if it does so in all of its columns.
                    if not is_open or above == first[row, column - 1]:
                        first[row, column] = above
        return _rectangles(first)

    def _filled(self, cells: dict[Square, Square], inside: dict[Square, list[Line]]) -> Table:
        rows: Table = []
        width = len(self.xs) - 1
        for row in range(len(self.ys) - 1):
            spans = {
                first: (
                    1 + max(r for (r, _), one in cells.items() if one == first) - first[0],
                    1 + max(c for (_, c), one in cells.items() if one == first) - first[1],
                )
                for first in {cells[row, column] for column in range(width)}
            }
            lines_of = {first: inside.get(first, []) for first in spans}
            is_open = len(self.ys) <= OPEN and all(rows == 1 for rows, _ in spans.values())
            for lines in _parted(lines_of) if is_open else [lines_of]:
                rows.append(
                    [
                        Cell(cell_text(lines[first]), *spans[first])
                        for first in sorted(spans, key=lambda one: one[1])
                        if first[0] == row
                    ]
                )
        return rows


def _parted(cells: dict[Square, list[Line]]) -> list[dict[Square, list[Line]]]:
    """What is between two drawn lines, as several rows if the texts of its cells stand in rows."""
    rows = rows_of(line for lines in cells.values() for line in lines)
    counts = [len(rows_of(lines)) for lines in cells.values()]
    if len(rows) < 2 or counts.count(len(rows)) < 2:
        return [cells]
    owner = {id(line): first for first, lines in cells.items() for line in lines}
    return [
        {first: [line for line in row if owner[id(line)] == first] for first in cells}
        for row in rows
    ]


def cell_text(lines: Iterable[Line]) -> str:
    """Lines of a cell as one."""
    return " ".join(line.text for row in rows_of(lines) for line in row)


def mirrored(table: Table) -> Table:
    """A table whose first column is the one on the right."""
    return [[replace(cell) for cell in row[::-1]] for row in table]


def _places(values: Iterable[float], near: float) -> list[float]:
    """Values, those that are near each other as one."""
    places: list[list[float]] = []
    for value in sorted(values):
        if places and value - places[-1][-1] <= near:
            places[-1].append(value)
        else:
            places.append([value])
    return [sum(place) / len(place) for place in places]


def _is_drawn(
    rules: Sequence[Box], axis: int, place: float, start: float, end: float, near: float
) -> bool:
    """Whether rules along an axis (0: x, 1: y) cover most of what is between two places."""
    covered = sum(
        max(0.0, min(rule[axis + 2], end) - max(rule[axis], start))
        for rule in rules
        if abs((rule[1 - axis] + rule[3 - axis]) / 2 - place) <= near
    )
    return covered >= COVERED * (end - start)


def _rectangles(first: dict[Square, Square]) -> dict[Square, Square]:
    """Cells that are rectangles; squares of others are cells of their own."""
    members: dict[Square, list[Square]] = {}
    for square, one in first.items():
        members.setdefault(one, []).append(square)
    whole = {}
    for one, squares in members.items():
        rows, columns = {row for row, _ in squares}, {column for _, column in squares}
        is_whole = len(squares) == len(rows) * len(columns)
        for square in squares:
            whole[square] = one if is_whole else square
    return whole
