"""Tables whose cells all have drawn sides: lattices. A cell goes over several rows or columns where
lines are missing."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product, starmap

from .languages import is_right_to_left
from .lines import rows_of
from .page import Line
from .regions import TABLE, Box, Region, Size, around, connected
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

OPEN = 3
"""Rows of a lattice up to which a cell may hold several rows of a table, as in books."""


def rules_of(boxes: Iterable[Box], size: Size) -> list[Box]:
    """Returns lines that are drawn from left to right, then those from top to bottom; parts of one
    line as one.

    Args:
        boxes: of what is drawn, in pixels.
        size: of the page.
    """
    unit, near = max(size), NEAR * max(size)
    kinds: tuple[list[Box], list[Box]] = [], []
    for box in boxes:
        width, height = box[2] - box[0], box[3] - box[1]
        if min(width, height) <= THIN * unit < max(width, height):
            kinds[width < height].append(box)
    rules = []
    for axis, kind in enumerate(kinds):
        whole: list[Box] = []
        for box in sorted(kind, key=lambda box: (round(2 * box[1 - axis] / near), box[axis])):
            last = whole[-1] if whole else None
            is_level = last is not None and abs(last[1 - axis] - box[1 - axis]) <= near / 2
            if last is not None and is_level and len(connected((last, box), near)) == 1:
                whole[-1] = around((last, box))
            else:
                whole.append(box)
        rules += [box for box in whole if box[axis + 2] - box[axis] >= SHORTEST * unit]
    return rules


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
    for group in connected(rules[:MAX_RULES], near):
        frame = around(group)
        inside = [line for line in rest if _holds(frame, _middle(line.bbox))]
        table = _table(group, inside, near)
        if table is not None:
            text = to_html(table) if has_spans(table) else to_tabs(table)
            tables.append(Region(frame, TABLE, 0, [text], confidence=1.0))
            places = set(map(id, inside))
            rest = [line for line in rest if id(line) not in places]
    return tables, rest


def _middle(box: Box) -> tuple[float, float]:
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


def _holds(box: Box, point: tuple[float, float]) -> bool:
    return box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]


def _table(rules: Sequence[Box], lines: Sequence[Line], near: float) -> Table | None:
    """Returns the table that rules which touch each other draw around lines; `None` for none."""
    frame = around(rules)
    across = [rule for rule in rules if rule[2] - rule[0] > rule[3] - rule[1]]
    down = [rule for rule in rules if rule[2] - rule[0] <= rule[3] - rule[1]]
    xs = _places([frame[0], frame[2], *(_middle(rule)[0] for rule in down)], near)
    ys = _places([frame[1], frame[3], *(_middle(rule)[1] for rule in across)], near)
    if not across or not down or min(len(xs), len(ys)) < 3:
        return None

    rows, columns = len(ys) - 1, len(xs) - 1

    @cache
    def is_open(axis: int, row: int, column: int) -> bool:
        """Whether no line is drawn between a square and the one above it (axis 0) or to its left
        (1)."""
        edges, at = (xs, column) if axis else (ys, row)
        start, end = (ys[row], ys[row + 1]) if axis else (xs[column], xs[column + 1])
        covered = sum(
            max(0.0, min(rule[axis + 2], end) - max(rule[axis], start))
            for rule in (down if axis else across)
            if abs(_middle(rule)[1 - axis] - edges[at]) <= near
        )
        return 0 < at < len(edges) - 1 and covered < COVERED * (end - start)

    firsts: dict[tuple[int, int], tuple[int, int]] = {}  # of each square, that its cell begins with
    spans: dict[tuple[int, int], tuple[int, int]] = {}
    for row, column in product(range(rows), range(columns)):
        if (row, column) in firsts:
            continue
        right, below = column + 1, row + 1
        while (row, right) not in firsts and right < columns and is_open(1, row, right):
            right += 1
        while below < rows and all(
            is_open(0, below, at) and (at == column or is_open(1, below, at))
            for at in range(column, right)
        ):
            below += 1
        sides = [(1, at, side) for at in range(row, below) for side in (column, right)]
        sides += [(0, side, at) for at in range(column, right) for side in (row, below)]
        if any(starmap(is_open, sides)):  # no rectangle
            right, below = column + 1, row + 1
        spans[row, column] = below - row, right - column
        for square in product(range(row, below), range(column, right)):
            firsts.setdefault(square, (row, column))
    inside: dict[tuple[int, int], list[Line]] = {first: [] for first in spans}
    for line in lines:
        x, y = _middle(line.bbox)
        inside[firsts[bisect(ys[1:-1], y), bisect(xs[1:-1], x)]].append(line)
    words = [sum(len(line.text.split()) for line in texts) for texts in inside.values()]
    is_table = sum(map(bool, words)) >= MIN_CELLS and max(words) <= MAX_WORDS
    has_rows = rows <= OPEN and any(_holds_rows(inside, row) for row in range(rows))
    if not is_table or has_rows or len({first[1] for first in inside if inside[first]}) < 2:
        return None
    table = [
        [Cell(cell_text(inside[first]), *spans[first]) for first in spans if first[0] == row]
        for row in range(rows)
    ]
    is_turned = 2 * sum(is_right_to_left(line.text) for line in lines) > len(lines)
    return [row[::-1] for row in table] if is_turned else table


def _holds_rows(inside: dict[tuple[int, int], list[Line]], row: int) -> bool:
    """Returns whether what is between two drawn lines is several rows: most of its cells have as
    many lines of text, beside each other."""
    cells = [lines for first, lines in inside.items() if first[0] == row and lines]
    counts = [len(rows_of(lines)) for lines in cells]
    whole = len(rows_of(line for lines in cells for line in lines))
    return whole > 1 and counts.count(whole) > 1


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
