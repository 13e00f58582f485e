"""Tables whose rows are told by lines that are drawn: a cell may be of several lines of text.

A row is what stands between two horizontal rules that begin and end at the same places. Columns are
told by vertical rules, or else by what is free between texts. Where several rows stand between two
rules, as in books, each line of text is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from .lines import column_spans, rows_of
from .page import Line
from .regions import TABLE, Box, Region, Size, around

THIN, SHORTEST = 0.004, 0.02

"""Most thickness of a rule and its least length, as shares of the page's longer side."""

TABLE_WIDTH = 0.15

"""Least width of a table, as a share of the page's."""

NEAR = 0.004

"""Share of the page's longer side by which ends of rules may miss each other."""

MOST_PATHS = 4000

"""Drawn things of a page that are looked at; with more they are a drawing."""

HEAD = 1.2

"""Heights of a line by which a head may stand above the first rule."""

HIGHEST = 0.4

"""Share of the page's height up to which two rules are of one table."""

SPANNED = 0.8

"""Share of a table's height that a vertical rule covers which divides its columns."""


def rules_of(boxes: Iterable[Box], size: Size) -> list[Box]:
    """Lines that are drawn from left to right or from top to bottom; parts of one line as one.

    Args:
        boxes: of what is drawn, in pixels.
        size: of the page.
    """
    unit = max(size)
    thin = [
        box
        for box in boxes
        if min(box[2] - box[0], box[3] - box[1]) <= THIN * unit
        and max(box[2] - box[0], box[3] - box[1]) > THIN * unit
    ]
    across = _merged([box for box in thin if box[2] - box[0] >= box[3] - box[1]], 0, NEAR * unit)
    down = _merged([box for box in thin if box[2] - box[0] < box[3] - box[1]], 1, NEAR * unit)
    whole = [(box, box[2] - box[0]) for box in across] + [(box, box[3] - box[1]) for box in down]
    return [box for box, length in whole if length >= SHORTEST * unit]


def _merged(boxes: list[Box], axis: int, near: float) -> list[Box]:
    """Parts of a line that touch each other, along an axis (0: x, 1: y)."""
    found: list[Box] = []
    rows: list[list[Box]] = []
    for box in sorted(boxes, key=lambda box: box[1 - axis]):
        if rows and box[1 - axis] - rows[-1][0][1 - axis] <= near / 2:
            rows[-1].append(box)
        else:
            rows.append([box])
    for row in rows:
        parts: list[Box] = []
        for box in sorted(row, key=lambda box: box[axis]):
            if parts and box[axis] <= parts[-1][axis + 2] + near:
                parts[-1] = around([parts[-1], box])
            else:
                parts.append(box)
        found += parts
    return found


def ruled_areas(rules: Sequence[Box], size: Size) -> list[Box]:
    """What lies between two rules of a group that may be those of a table."""
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


def ruled_tables(
    lines: Sequence[Line], rules: Sequence[Box], size: Size
) -> tuple[list[Region], list[Line]]:
    """Tables between rules, rows with tabs between their cells, and the lines of none.

    Args:
        lines: of the page, in pixels.
        rules: those of `rules_of`.
        size: of the page.
    """
    near = NEAR * max(size)
    tables: list[Region] = []
    rest = list(lines)
    for group in _groups(rules, near, TABLE_WIDTH * size[0]):
        for bands in _runs(_bands(group, rest, near)):
            run = [*_head(bands, group[0], rest), *bands, *_foot(bands, group[0], rest)]
            table = _table(run, group[0], rules, near)
            if table is not None:
                used = {id(line) for band in run for line in band.lines}
                rest = [line for line in rest if id(line) not in used]
                tables.append(table)
    return tables, rest


def _runs(bands: Sequence[_Band]) -> list[Sequence[_Band]]:
    """Bands of each table.

    Where what is beside one looks like its row, a text reaches over columns there, and rules alone
    don't tell the cells of that table.
    """
    found = []
    start = 0
    while start < len(bands):
        count = _longest(bands[start:])
        beside = [*bands[max(start - 1, 0) : start], *bands[start + count : start + count + 1]]
        if count > 1 and not any(_is_row(band) for band in beside):
            found.append(bands[start : start + count])
        start += max(count, 1)
    return found


def _is_row(band: _Band) -> bool:
    return len(column_spans(band.lines)) > 1 and not _is_spread(band.lines)


def _groups(rules: Sequence[Box], near: float, width: float) -> list[list[Box]]:
    """Horizontal rules that begin and end at the same places, from top to bottom."""
    groups: list[list[Box]] = []
    across = [box for box in rules if box[2] - box[0] > box[3] - box[1]]
    for rule in sorted(across, key=lambda box: box[1]):
        if rule[2] - rule[0] < width:
            continue
        same = [one for one in groups if all(abs(one[0][n] - rule[n]) <= near for n in (0, 2))]
        if same:
            same[0].append(rule)
        else:
            groups.append([rule])
    return [group for group in groups if len(group) > 2]


def _bands(group: Sequence[Box], lines: Sequence[Line], near: float) -> list[_Band]:
    """What stands between a group's rules: nothing where these are one double rule."""
    left, right = group[0][0] - near, group[0][2] + near
    found = []
    for upper, lower in pairwise(group):
        inside = [
            line
            for line in lines
            if upper[1] <= (line.bbox[1] + line.bbox[3]) / 2 <= lower[3]
            and left <= (line.bbox[0] + line.bbox[2]) / 2 <= right
        ]
        if inside and not _is_inside(inside, upper):
            inside = []  # text of the page, which no table holds
        elif not inside and lower[1] - upper[3] <= near:
            continue
        found.append(_Band(upper[1], lower[3], inside))
    return found


def _head(bands: Sequence[_Band], rule: Box, lines: Sequence[Line]) -> list[_Band]:
    """A row right above the first rule, with texts in two columns or more of those below."""
    below = [line for band in bands for line in band.lines]
    if not below:
        return []
    top = bands[0].top
    height = median(line.bbox[3] - line.bbox[1] for line in below)
    above = [
        line
        for line in lines
        if top - HEAD * height <= (line.bbox[1] + line.bbox[3]) / 2 < top
        and rule[0] <= (line.bbox[0] + line.bbox[2]) / 2 <= rule[2]
    ]
    rows = rows_of(above)
    if not rows or len(rows[-1]) < 2:
        return []
    columns = column_spans(below)
    if len(columns) < 2 or len(column_spans([*below, *rows[-1]])) < len(columns):
        return []
    return [_Band(min(line.bbox[1] for line in rows[-1]), top, rows[-1])]


def _foot(bands: Sequence[_Band], rule: Box, lines: Sequence[Line]) -> list[_Band]:
    """The last row, where no rule is below it."""
    above = [line for band in bands for line in band.lines]
    bottom = bands[-1].bottom
    height = median(line.bbox[3] - line.bbox[1] for line in above)
    below = [line for line in lines if (line.bbox[1] + line.bbox[3]) / 2 > bottom]
    found: list[Line] = []
    end = bottom + (HEAD - 1) * height
    for row in rows_of(below):
        if around(line.bbox for line in row)[1] > end:
            break
        found += row
        end = around(line.bbox for line in row)[3] + (HEAD - 1) * height
    columns = column_spans(above)
    is_row = len(column_spans(found)) > 1 and _is_inside(found, rule)
    if not is_row or len(column_spans([*above, *found])) < len(columns):
        return []
    if not _is_apart(found, column_spans([*above, *found])):
        return []
    return [_Band(bottom, max(line.bbox[3] for line in found), found)]


def _is_inside(lines: Sequence[Line], rule: Box) -> bool:
    """Whether all of the lines lie between the left and the right end of a rule."""
    slack = max(line.bbox[3] - line.bbox[1] for line in lines)
    left, right = rule[0] - slack, rule[2] + slack
    return all(left <= line.bbox[0] and line.bbox[2] <= right for line in lines)


def _longest(bands: Sequence[_Band]) -> int:
    """How many of the first bands are of one table: text in the same columns in each."""
    lines: list[Line] = []
    for count, band in enumerate(bands):
        lines = [*lines, *band.lines]
        columns = column_spans(lines)
        is_apart = all(_is_apart(one.lines, columns) for one in bands[: count + 1])
        if not band.lines or len(columns) < 2 or not is_apart or _is_spread(band.lines):
            return count
    return len(bands)


def _is_apart(lines: Sequence[Line], columns: Sequence[tuple[float, float]]) -> bool:
    """Whether texts beside each other are in columns of their own."""
    for row in rows_of(lines):
        places = [sum(start <= line.bbox[0] for start, _ in columns) for line in row]
        if len(set(places)) < len(places):
            return False
    return True


def _is_spread(lines: Sequence[Line]) -> bool:
    """Whether more is free between lines than within a table."""
    height = median(line.bbox[3] - line.bbox[1] for line in lines)
    frames = [around(line.bbox for line in row) for row in rows_of(lines)]
    return any(lower[1] - upper[3] > height for upper, lower in pairwise(frames))


def _table(bands: Sequence[_Band], rule: Box, rules: Sequence[Box], near: float) -> Region | None:
    """The table of these bands; `None` if their rules don't tell its rows."""
    lines = [line for band in bands for line in band.lines]
    top, bottom = bands[0].top, bands[-1].bottom
    edges = _edges(rules, (rule[0], top, rule[2], bottom), near) or [
        (one[1] + other[0]) / 2 for one, other in pairwise(column_spans(lines))
    ]
    if any(line.bbox[0] + near < edge < line.bbox[2] - near for line in lines for edge in edges):
        return None  # a cell over several columns
    if _is_parted(rules, (rule[0], top, rule[2], bottom), near):
        return None
    rows = [_cells(band.lines, edges) for band in bands]
    if median(max(1, begun) for _, begun in rows[1:]) > 1:  # several rows between two rules
        rows = [_cells(row, edges) for band in bands for row in rows_of(band.lines)]
    text = "\n".join("\t".join(cells) for cells, _ in rows)
    frame = around([(rule[0], top, rule[2], bottom), *(line.bbox for line in lines)])
    return Region(frame, TABLE, 0, [text])


def _edges(rules: Sequence[Box], frame: Box, near: float) -> list[float]:
    """Where vertical rules divide the columns of a table."""
    left, top, right, bottom = frame
    return sorted(
        (rule[0] + rule[2]) / 2
        for rule in rules
        if rule[3] - rule[1] > rule[2] - rule[0]
        and left + near < rule[0] < right - near
        and min(rule[3], bottom) - max(rule[1], top) >= SPANNED * (bottom - top)
    )


def _is_parted(rules: Sequence[Box], frame: Box, near: float) -> bool:
    """Whether rules below some of the columns divide a row, as beside a cell over several rows."""
    left, top, right, bottom = frame
    return any(
        top + near < rule[1] < bottom - near
        and rule[2] - rule[0] > rule[3] - rule[1]
        and left - near <= rule[0]
        and rule[2] <= right + near
        and rule[2] - rule[0] < right - left - 2 * near
        for rule in rules
    )


def _cells(lines: Sequence[Line], edges: Sequence[float]) -> tuple[list[str], int]:
    """A row's cells, and of how many lines the shortest of them is that has any."""
    cells: list[list[str]] = [[] for _ in range(len(edges) + 1)]
    for row in rows_of(lines):
        said: dict[int, str] = {}
        for line in row:
            middle = (line.bbox[0] + line.bbox[2]) / 2
            place = sum(edge < middle for edge in edges)
            said[place] = f"{said.get(place, '')} {line.text}".strip()
        for place, text in said.items():
            cells[place].append(text)
    counts = [len(cell) for cell in cells if cell]
    return [" ".join(cell) for cell in cells], min(counts, default=0)
