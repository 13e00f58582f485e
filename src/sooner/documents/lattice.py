"""Tables whose cells all have drawn sides: lattices.

A cell goes over several rows or columns where lines are missing. Where several rows stand between
two lines, as in books, each line of text is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product, starmap

from .languages import is_right_to_left
from .lines import rows_of
from .page import Line
from .regions import TABLE, Box, Region, Size, around
from .tables import Cell, Table, has_spans, to_html, to_tabs

THIN, SHORTEST = 0.004, 0.02
"""Most thickness of a rule and its least length, as shares of the page's longer side."""

NEAR = 0.004
"""Share of the page's longer side by which ends of rules may miss each other."""

MAX_PATHS, MAX_RULES = 4000, 1000
"""Drawn things of a page, and rules, that are looked at; with more they are a drawing."""

COVERED = 0.6
"""Share of a cell's side that is drawn where a neighbour begins."""

MIN_CELLS, MAX_WORDS = 3, 150
"""Cells with text that a lattice has, and words of one; with more it is a box on the page."""

OPEN = 4
"""Lines from left to right of a lattice up to which several of its rows may stand between two."""

Square = tuple[int, int]
"""Row and column of a lattice."""


def rules_of(boxes: Iterable[Box], size: Size) -> list[Box]:
    """Returns lines that are drawn from left to right, then those from top to bottom; parts of one
    line as one.

    Args:
        boxes: of what is drawn, in pixels.
        size: of the page.
    """
    unit = max(size)
    kinds: tuple[list[Box], list[Box]] = [], []
    for box in boxes:
        width, height = box[2] - box[0], box[3] - box[1]
        if min(width, height) <= THIN * unit < max(width, height):
            kinds[width < height].append(box)
    whole = [_merged(kind, axis, NEAR * unit) for axis, kind in enumerate(kinds)]
    return [
        box
        for axis, kind in enumerate(whole)
        for box in kind
        if box[axis + 2] - box[axis] >= SHORTEST * unit
    ]


def _merged(boxes: Sequence[Box], axis: int, near: float) -> list[Box]:
    """Returns parts of a line that touch each other, along an axis (0: x, 1: y)."""
    rows: list[list[Box]] = []
    for box in sorted(boxes, key=lambda box: box[1 - axis]):
        if not rows or box[1 - axis] - rows[-1][0][1 - axis] > near / 2:
            rows.append([])
        rows[-1].append(box)
    result: list[Box] = []
    for row in rows:
        start = len(result)
        for box in sorted(row, key=lambda box: box[axis]):
            if len(result) > start and box[axis] <= result[-1][axis + 2] + near:
                result[-1] = around([result[-1], box])
            else:
                result.append(box)
    return result


def _is_across(rule: Box) -> bool:
    return rule[2] - rule[0] > rule[3] - rule[1]


def _middle(box: Box) -> tuple[float, float]:
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


def drawn_tables(
    lines: Sequence[Line], rules: Sequence[Box], size: Size
) -> tuple[list[Region], list[Line]]:
    """Returns tables between drawn lines, and the lines of text of none.

    Args:
        lines: of the page, in pixels.
        rules: those of `rules_of`.
        size: of the page.
    """
    near = NEAR * max(size)
    tables: list[Region] = []
    rest = list(lines)
    for connected in _connected(rules[:MAX_RULES], near):
        if (lattice := _Lattice.of(connected, near)) is None:
            continue
        inside = [line for line in rest if lattice.square(line) is not None]
        if (table := lattice.table(inside)) is not None:
            text = to_html(table) if has_spans(table) else to_tabs(table)
            tables.append(Region(lattice.box, TABLE, 0, [text], confidence=1.0))
            places = set(map(id, inside))
            rest = [line for line in rest if id(line) not in places]
    return tables, rest


def _connected(rules: Sequence[Box], near: float) -> list[list[Box]]:
    """Returns rules that touch each other, directly or by others."""
    groups: list[list[Box]] = []
    for rule in rules:
        touching, rest = list[list[Box]](), list[list[Box]]()
        for group in groups:
            is_near = any(_touch(rule, other, near) for other in group)
            (touching if is_near else rest).append(group)
        groups = [*rest, [rule, *(other for group in touching for other in group)]]
    return groups


def _touch(a: Box, b: Box, near: float) -> bool:
    across = min(a[2], b[2]) - max(a[0], b[0])
    return across >= -near and min(a[3], b[3]) - max(a[1], b[1]) >= -near


@dataclass(frozen=True)
class _Lattice:
    """Lines that cross each other.

    Attributes:
        edges: where columns begin and end, and where rows do, in pixels.
        rules: the lines from left to right, and those from top to bottom.
        near: pixels by which they may miss each other.
    """

    edges: tuple[list[float], list[float]]
    rules: tuple[list[Box], list[Box]]
    near: float

    @classmethod
    def of(cls, rules: Sequence[Box], near: float) -> _Lattice | None:
        """Returns the lattice of rules that touch each other; `None` if it has one row or one
        column.
        """
        frame = around(rules)
        across = [rule for rule in rules if _is_across(rule)]
        down = [rule for rule in rules if not _is_across(rule)]
        xs, ys = (
            _places([frame[axis], frame[axis + 2], *(_middle(rule)[axis] for rule in kind)], near)
            for axis, kind in enumerate((down, across))
        )
        is_lattice = bool(across and down) and min(len(xs), len(ys)) > 2
        return cls((xs, ys), (across, down), near) if is_lattice else None

    @property
    def box(self) -> Box:
        xs, ys = self.edges
        return xs[0], ys[0], xs[-1], ys[-1]

    def square(self, line: Line) -> Square | None:
        """Returns where the middle of a line of text is."""
        middle = _middle(line.bbox)
        if any(
            not edges[0] <= at <= edges[-1] for edges, at in zip(self.edges, middle, strict=True)
        ):
            return None
        column, row = (
            sum(edge < at for edge in edges[1:-1])
            for edges, at in zip(self.edges, middle, strict=True)
        )
        return row, column

    def table(self, lines: Sequence[Line]) -> Table | None:
        """Returns the table with these lines in its cells; `None` if that is none."""
        cells = self._cells()
        inside: dict[Square, list[Line]] = {first: [] for first in cells}
        firsts = {
            (first[0] + down, first[1] + right): first
            for first, (rows, columns) in cells.items()
            for down in range(rows)
            for right in range(columns)
        }
        for line in lines:
            square = self.square(line)
            if square is not None:
                inside[firsts[square]].append(line)
        words = [sum(len(line.text.split()) for line in texts) for texts in inside.values()]
        is_table = sum(map(bool, words)) >= MIN_CELLS and max(words) <= MAX_WORDS
        if not is_table or len({column for (_, column), texts in inside.items() if texts}) < 2:
            return None
        table: Table = []
        for row in range(len(self.edges[1]) - 1):
            texts_of = {first: inside[first] for first in cells if first[0] == row}
            width = sum(cells[first][1] for first in texts_of if cells[first][0] == 1)
            is_open = len(self.edges[1]) <= OPEN and width == len(self.edges[0]) - 1
            for texts in _parted(texts_of) if is_open else [texts_of]:
                table.append([Cell(cell_text(texts[first]), *cells[first]) for first in texts])
        is_turned = 2 * sum(is_right_to_left(line.text) for line in lines) > len(lines)
        return [row[::-1] for row in table] if is_turned else table

    def _cells(self) -> dict[Square, tuple[int, int]]:
        """Returns rows and columns of each cell, by its first square: it goes on to the right and
        below as far as no line is drawn. Cells that are no rectangles are taken apart.
        """
        xs, ys = self.edges
        cells: dict[Square, tuple[int, int]] = {}
        used: set[Square] = set()

        @cache
        def is_left_open(row: int, column: int) -> bool:
            is_inside = 0 < column < len(xs) - 1
            return is_inside and not self._is_drawn(1, xs[column], ys[row], ys[row + 1])

        @cache
        def is_top_open(row: int, column: int) -> bool:
            is_inside = 0 < row < len(ys) - 1
            return is_inside and not self._is_drawn(0, ys[row], xs[column], xs[column + 1])

        for row, column in product(range(len(ys) - 1), range(len(xs) - 1)):
            if (row, column) in used:
                continue
            right, below = column + 1, row + 1
            while (row, right) not in used and is_left_open(row, right):
                right += 1
            while all(is_top_open(below, place) for place in range(column, right)) and all(
                is_left_open(below, place) for place in range(column + 1, right)
            ):
                below += 1
            sides = product(range(row, below), (column, right))
            ends = product((row, below), range(column, right))
            if any(starmap(is_left_open, sides)) or any(starmap(is_top_open, ends)):
                right, below = column + 1, row + 1
            cells[row, column] = below - row, right - column
            used.update(product(range(row, below), range(column, right)))
        return cells

    def _is_drawn(self, axis: int, place: float, start: float, end: float) -> bool:
        """Returns whether rules along an axis (0: x, 1: y) cover most of what is between two
        places.
        """
        covered = sum(
            max(0.0, min(rule[axis + 2], end) - max(rule[axis], start))
            for rule in self.rules[axis]
            if abs(_middle(rule)[1 - axis] - place) <= self.near
        )
        return covered >= COVERED * (end - start)


def _parted(cells: dict[Square, list[Line]]) -> list[dict[Square, list[Line]]]:
    """Returns what is between two drawn lines, as several rows if the texts of its cells stand in
    rows.
    """
    rows = rows_of(line for lines in cells.values() for line in lines)
    counts = [len(rows_of(lines)) for lines in cells.values()]
    if len(rows) < 2 or counts.count(len(rows)) < 2:
        return [cells]
    places = [set(map(id, row)) for row in rows]
    return [
        {first: [line for line in lines if id(line) in place] for first, lines in cells.items()}
        for place in places
    ]


def cell_text(lines: Iterable[Line]) -> str:
    """Returns lines of a cell as one."""
    return " ".join(line.text for row in rows_of(lines) for line in row)


def _places(values: Iterable[float], near: float) -> list[float]:
    """Returns values, those that are near each other as one."""
    places: list[list[float]] = []
    for value in sorted(values):
        if not places or value - places[-1][-1] > near:
            places.append([])
        places[-1].append(value)
    return [sum(place) / len(place) for place in places]
