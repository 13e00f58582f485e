"""Tables between lines that are drawn: lattices, whose cells all have sides, and ruled tables,
which have lines between their rows alone.

A cell of a lattice goes over several rows or columns where lines are missing. Columns of a ruled
table are told by what is free between texts. Where several rows stand between two lines, as in
books, each line of text is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from .languages import is_right_to_left
from .lines import column_edges, column_spans, in_cells, rows_of
from .page import Line
from .regions import TABLE, Box, Region, Size, around
from .tables import Cell, Table, has_spans, to_html, to_tabs

THIN, SHORTEST = 0.004, 0.02
"""Most thickness of a rule and its least length, as shares of the page's longer side."""

TABLE_WIDTH = 0.15
"""Least width of a ruled table, as a share of the page's."""

NEAR = 0.004
"""Share of the page's longer side by which ends of rules may miss each other."""

MAX_PATHS, MAX_RULES = 4000, 1000
"""Drawn things of a page, and rules, that are looked at; with more they are a drawing."""

HEAD = 1.2
"""Heights of a line by which a head may stand above the first rule."""

HIGHEST = 0.4
"""Share of the page's height up to which two rules are of one table."""

SPANNED, COVERED = 0.8, 0.6
"""Share of a ruled table's height that a vertical rule covers which divides its columns, and of a
lattice's cell's side that is drawn where a neighbour begins."""

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
    """Returns tables between drawn lines, lattices first, and the lines of text of none.

    Args:
        lines: of the page, in pixels.
        rules: those of `rules_of`.
        size: of the page.
    """
    near = NEAR * max(size)
    tables: list[Region] = []
    rest = list(lines)

    def take(frame: Box, table: Table, used: Sequence[Line]) -> None:
        text = to_html(table) if has_spans(table) else to_tabs(table)
        tables.append(Region(frame, TABLE, 0, [text], confidence=1.0))
        places = set(map(id, used))
        rest[:] = [line for line in rest if id(line) not in places]

    for connected in _connected(rules[:MAX_RULES], near):
        if (lattice := _Lattice.of(connected, near)) is not None:
            inside = [line for line in rest if lattice.square(line) is not None]
            if (table := lattice.table(inside)) is not None:
                take(lattice.box, table, inside)
    for group in _groups(rules, near, TABLE_WIDTH * size[0]):
        for bands in _runs(_bands(group, rest, near)):
            run = [*_head(bands, group[0], rest), *bands, *_foot(bands, group[0], rest)]
            inside = [line for band in run for line in band.lines]
            if (table := _table(run, group[0], rules, near)) is not None:
                frame = group[0][0], run[0].top, group[0][2], run[-1].bottom
                take(around([frame, *(line.bbox for line in inside)]), table, inside)
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
        inside: dict[Square, list[Line]] = {}
        for line in lines:
            square = self.square(line)
            if square is not None:
                inside.setdefault(cells[square], []).append(line)
        words = [sum(len(line.text.split()) for line in result) for result in inside.values()]
        if len(words) < MIN_CELLS or max(words) > MAX_WORDS:
            return None
        if len({column for _, column in inside}) < 2:
            return None
        table = self._filled(cells, inside)
        is_turned = 2 * sum(is_right_to_left(line.text) for line in lines) > len(lines)
        return [row[::-1] for row in table] if is_turned else table

    def _cells(self) -> dict[Square, Square]:
        """Returns the first square of the cell that each square is part of; cells that are no
        rectangles are taken apart.
        """
        first: dict[Square, Square] = {}
        for row, sides in enumerate(pairwise(self.edges[1])):
            for column, ends in enumerate(pairwise(self.edges[0])):
                first[row, column] = row, column
                is_open = column and not self._is_drawn(1, ends[0], *sides)
                if is_open:
                    first[row, column] = first[row, column - 1]
                if row and not self._is_drawn(0, sides[0], *ends):
                    above = first[row - 1, column]
                    # A cell goes on below if it does so in all of its columns.
                    if not is_open or above == first[row, column - 1]:
                        first[row, column] = above
        members: dict[Square, list[Square]] = {}
        for square, cell in first.items():
            members.setdefault(cell, []).append(square)
        return {
            square: cell if len(squares) == _product(_extent(squares)) else square
            for cell, squares in members.items()
            for square in squares
        }

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

    def _filled(self, cells: dict[Square, Square], inside: dict[Square, list[Line]]) -> Table:
        """Returns rows of the lattice's cells with their texts."""
        members: dict[Square, list[Square]] = {}
        for square, first in cells.items():
            members.setdefault(first, []).append(square)
        spans = {first: _extent(squares) for first, squares in members.items()}
        table: Table = []
        for row in range(len(self.edges[1]) - 1):
            firsts = sorted({first for square, first in cells.items() if square[0] == row},
                            key=lambda first: first[1])  # fmt: skip
            lines_of = {first: inside.get(first, []) for first in firsts}
            is_open = len(self.edges[1]) <= OPEN and all(spans[first][0] == 1 for first in firsts)
            for lines in _parted(lines_of) if is_open else [lines_of]:
                table.append(
                    [
                        Cell(cell_text(lines[first]), *spans[first])
                        for first in firsts
                        if first[0] == row
                    ]
                )
        return table


def _extent(squares: Iterable[Square]) -> tuple[int, int]:
    """Returns rows and columns that squares reach over."""
    rows, columns = zip(*squares, strict=True)
    return max(rows) - min(rows) + 1, max(columns) - min(columns) + 1


def _product(sides: tuple[int, int]) -> int:
    return sides[0] * sides[1]


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


def ruled_areas(rules: Sequence[Box], size: Size) -> list[Box]:
    """Returns what lies between two rules of a group that may be those of a table."""
    groups = _groups(rules, NEAR * max(size), TABLE_WIDTH * size[0])
    return [
        around([upper, lower])
        for group in groups
        for upper, lower in pairwise(group)
        if lower[3] - upper[1] < HIGHEST * size[1]
    ]


@dataclass(frozen=True)
class _Band:
    """What stands between two rules: their places, and the lines of text there."""

    top: float
    bottom: float
    lines: list[Line]

    @property
    def is_row(self) -> bool:
        """Whether it looks like the row of a table."""
        return len(column_spans(self.lines)) > 1 and not self.is_spread

    @property
    def is_spread(self) -> bool:
        """Whether more is free between its lines than within a table."""
        height = _height(self.lines)
        frames = [around(line.bbox for line in row) for row in rows_of(self.lines)]
        return any(lower[1] - upper[3] > height for upper, lower in pairwise(frames))


def _height(lines: Iterable[Line]) -> float:
    return median(line.bbox[3] - line.bbox[1] for line in lines)


def _groups(rules: Sequence[Box], near: float, width: float) -> list[list[Box]]:
    """Returns horizontal rules that begin and end at the same places, from top to bottom."""
    groups: list[list[Box]] = []
    across = [rule for rule in rules if _is_across(rule) and rule[2] - rule[0] >= width]
    for rule in sorted(across, key=lambda rule: rule[1]):
        same = [
            member for member in groups if all(abs(member[0][n] - rule[n]) <= near for n in (0, 2))
        ]
        if not same:
            groups.append([])
        (same or groups[-1:])[0].append(rule)
    return [group for group in groups if len(group) > 2]


def _bands(group: Sequence[Box], lines: Sequence[Line], near: float) -> list[_Band]:
    """Returns what stands between a group's rules: nothing where these are one double rule."""
    left, right = group[0][0] - near, group[0][2] + near
    middles = [(line, *_middle(line.bbox)) for line in lines]
    result = []
    for upper, lower in pairwise(group):
        inside = [
            line for line, x, y in middles if upper[1] <= y <= lower[3] and left <= x <= right
        ]
        if inside or lower[1] - upper[3] > near:
            # Text of the page reaches beyond the rules, and is in no table.
            result.append(_Band(upper[1], lower[3], inside if _is_inside(inside, upper) else []))
    return result


def _is_inside(lines: Sequence[Line], rule: Box) -> bool:
    """Returns whether all of the lines lie between the left and the right end of a rule."""
    slack = max((line.bbox[3] - line.bbox[1] for line in lines), default=0.0)
    left, right = rule[0] - slack, rule[2] + slack
    return all(left <= line.bbox[0] and line.bbox[2] <= right for line in lines)


def _runs(bands: Sequence[_Band]) -> Iterator[Sequence[_Band]]:
    """Yields bands of each table.

    Where what is beside one looks like its row, a text reaches over columns there, and rules alone
    don't tell the cells of that table.
    """
    start = 0
    while start < len(bands):
        count = _longest(bands[start:])
        neighbours = [*bands[max(start - 1, 0) : start], *bands[start + count : start + count + 1]]
        if count > 1 and not any(band.lines and band.is_row for band in neighbours):
            yield bands[start : start + count]
        start += max(count, 1)


def _longest(bands: Sequence[_Band]) -> int:
    """Returns how many of the first bands are of one table: text in the same columns in each."""
    lines: list[Line] = []
    for count, band in enumerate(bands):
        lines += band.lines
        columns = column_spans(lines)
        is_apart = all(_is_apart(other.lines, columns) for other in bands[: count + 1])
        if not band.lines or len(columns) < 2 or not is_apart or band.is_spread:
            return count
    return len(bands)


def _is_apart(lines: Sequence[Line], columns: Sequence[tuple[float, float]]) -> bool:
    """Returns whether texts beside each other are in columns of their own."""
    for row in rows_of(lines):
        places = {sum(start <= line.bbox[0] for start, _ in columns) for line in row}
        if len(places) < len(row):
            return False
    return True


def _head(bands: Sequence[_Band], rule: Box, lines: Sequence[Line]) -> list[_Band]:
    """Returns a row right above the first rule, with texts in two columns or more of those
    below.
    """
    below = [line for band in bands for line in band.lines]
    top = bands[0].top
    reach = top - HEAD * _height(below)
    above = [
        line for line in lines
        if reach <= _middle(line.bbox)[1] < top and rule[0] <= _middle(line.bbox)[0] <= rule[2]
    ]  # fmt: skip
    row = (rows_of(above) or [[]])[-1]
    count = len(column_spans(below))
    if len(row) < 2 or count < 2 or len(column_spans([*below, *row])) < count:
        return []
    return [_Band(min(line.bbox[1] for line in row), top, row)]


def _foot(bands: Sequence[_Band], rule: Box, lines: Sequence[Line]) -> list[_Band]:
    """Returns the last row, where no rule is below it."""
    above = [line for band in bands for line in band.lines]
    bottom, free = bands[-1].bottom, (HEAD - 1) * _height(above)
    result: list[Line] = []
    end = bottom + free
    for row in rows_of(line for line in lines if _middle(line.bbox)[1] > bottom):
        if around(line.bbox for line in row)[1] > end:
            break
        result += row
        end = around(line.bbox for line in row)[3] + free
    columns = column_spans([*above, *result])
    is_row = len(column_spans(result)) > 1 and _is_inside(result, rule)
    if not is_row or len(columns) < len(column_spans(above)) or not _is_apart(result, columns):
        return []
    return [_Band(bottom, max(line.bbox[3] for line in result), result)]


def _table(bands: Sequence[_Band], rule: Box, rules: Sequence[Box], near: float) -> Table | None:
    """Returns the table of these bands; `None` if their rules don't tell its rows."""
    lines = [line for band in bands for line in band.lines]
    (left, _, right, _), top, bottom = rule, bands[0].top, bands[-1].bottom
    edges = sorted(
        _middle(rule)[0]
        for rule in rules
        if not _is_across(rule) and left + near < rule[0] < right - near
        if min(rule[3], bottom) - max(rule[1], top) >= SPANNED * (bottom - top)
    ) or column_edges(lines)
    if any(line.bbox[0] + near < edge < line.bbox[2] - near for line in lines for edge in edges):
        return None  # a cell over several columns
    if any(
        _is_across(rule) and top + near < rule[1] < bottom - near
        and left - near <= rule[0] and rule[2] <= right + near
        and rule[2] - rule[0] < right - left - 2 * near
        for rule in rules
    ):  # fmt: skip
        return None  # rules below some of the columns, beside a cell over several rows
    rows = [in_cells(rows_of(band.lines), edges) for band in bands]
    shortest = [min((len(cell) for cell in cells if cell), default=1) for cells in rows[1:]]
    if median(shortest) > 1:  # several rows between two rules
        rows = [in_cells([row], edges) for band in bands for row in rows_of(band.lines)]
    return [[Cell(" ".join(cell)) for cell in cells] for cells in rows]
