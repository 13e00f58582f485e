"""Groups lines into regions, by a layout model's boxes and by the lines' own arrangement, and puts
regions into reading order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain, combinations, groupby, pairwise, takewhile
from statistics import median_low
from typing import TypeVar

from .page import Line
from .pdf_text import CODE_BLANK
from .regions import Box, Label, Region, Size, area, around, common_share, numbered, overlap
from .serialise import fenced, mark_of

SAME_PLACE = 0.5
"""Share of the smaller one of two boxes from which they are in one row or column, or a line is in a
layout box."""

SAME_SIZE = 1.35
"""Ratio of sizes up to which two lines are of one block, if sizes are measured on a picture."""

LINE_GAP, MAX_LINE_GAP, CODE_GAP, ROW_GAP, INDENT = 0.45, 0.95, 1.6, 1.5, 0.8
"""Heights of a line that may be free between two lines of a block, always and at most, between two
of code, and between rows of a table; and by which a paragraph's first line starts further right."""

NOTE = re.compile(r"<sup>[^<\s]{1,3}</sup>")
"""How a footnote begins."""

T = TypeVar("T")


def runs(items: Iterable[T], continues: Callable[[list[T], T], bool]) -> list[list[T]]:
    """Returns items in groups: each joins the group before it where it continues that."""
    groups: list[list[T]] = []
    for item in items:
        if groups and continues(groups[-1], item):
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups


def rows_of(lines: Iterable[Line]) -> list[list[Line]]:
    """Returns lines beside each other, from top to bottom, each row from left to right."""
    rows = runs(
        sorted(lines, key=lambda line: line.bbox[1] + line.bbox[3]),
        lambda row, line: any(common_share(cell.bbox, line.bbox, 1) > SAME_PLACE for cell in row),
    )
    return [sorted(row, key=lambda line: line.bbox[0]) for row in rows]


def blocks_of(lines: Sequence[Line], same_size: float = SAME_SIZE) -> list[list[Line]]:
    """Returns lines put together to paragraphs, headings and items of lists, each from top to
    bottom, in no special order."""
    usual = _usual_gap(lines)
    blocks: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: (line.bbox[1], line.bbox[0])):
        above = [block for block in blocks if _continues(block, line, usual, same_size)]
        if above:
            max(above, key=lambda block: block[-1].bbox[3]).append(line)
        else:
            blocks.append([line])
    return blocks


def _usual_gap(lines: Sequence[Line]) -> float:
    """Returns heights that are free between a line and the next one below it within a paragraph.

    That is the lower quartile, since the larger ones are between paragraphs.
    """
    gaps = []
    for line in lines:
        _, top, _, bottom = line.bbox
        others = (other.bbox for other in lines if other.bbox[1] > (top + bottom) / 2)
        below = [box[1] - bottom for box in others if common_share(line.bbox, box, 0) > SAME_PLACE]
        if below:
            gaps.append(max(min(below), 0.0) / max(bottom - top, 1.0))
    return sorted(gaps)[len(gaps) // 4] if gaps else 0.0


def _continues(block: Sequence[Line], line: Line, usual: float, same_size: float) -> bool:
    last, first = block[-1], block[0]
    height, gap = last.bbox[3] - last.bbox[1], line.bbox[1] - last.bbox[3]
    limit = min(max(LINE_GAP, 1.5 * usual), MAX_LINE_GAP) * height
    if last.mono and line.mono:
        return -0.5 * height < gap <= CODE_GAP * height and line.bbox[2] > first.bbox[0]
    if not -0.5 * height < gap <= limit or common_share(last.bbox, line.bbox, 0) < SAME_PLACE:
        return False
    is_same_size = max(last.size, line.size) <= same_size * min(last.size, line.size)
    if not is_same_size or last.bold != line.bold or mark_of(line.text):
        return False
    left = min(other.bbox[0] for other in block)
    is_item = len(block) == 1 or mark_of(first.text) is not None
    return is_item or abs(line.bbox[0] - left) <= INDENT * height


def table_text(lines: Sequence[Line]) -> str:
    """Returns a table as rows of cells with tabs between them; cells keep their columns."""
    edges = [(left[2] + right[0]) / 2 for left, right in pairwise(columns_of(lines))]
    rows = []
    for row in rows_of(lines):
        cells = [""] * (len(edges) + 1)
        for line in row:
            place = sum(edge < (line.bbox[0] + line.bbox[2]) / 2 for edge in edges)
            cells[place] = f"{cells[place]} {line.text}".strip()
        rows.append("\t".join(cells))
    return "\n".join(rows)


def columns_of(lines: Iterable[Line]) -> list[Box]:
    """Returns boxes of columns, from left to right, with nothing between them."""
    boxes = sorted(line.bbox for line in lines)
    return list(map(around, runs(boxes, lambda column, box: box[0] < around(column)[2])))


GUTTER, COLUMN_LINES, PROSE_LINES, PROSE_WORDS = (0.15, 0.85), 3, 2, 3
"""Where a gutter may be, in widths of the lines; the fewest lines of a column; and the fewest that
are alone in their row, with so many words, in a column of text, which is no table's."""


def text_columns(lines: Sequence[Line]) -> list[list[Line]]:
    """Returns columns of text, and what goes over several of them, in reading order.

    Two columns lie at the sides of the widest gap that the fewest lines cross; each may be two.
    """
    gutter = _gutter(lines)
    if gutter is None:
        return [list(lines)]
    groups: list[list[Line]] = [[]]
    ordered = sorted(lines, key=lambda line: line.bbox[1])
    for _, run in groupby(ordered, lambda line: line.bbox[0] < gutter < line.bbox[2]):
        band = list(run)
        sides = _sides(band, gutter)
        if sum(map(len, sides)) == len(band) and all(map(_is_prose, sides)):
            groups += [*chain(*map(text_columns, sides)), []]
        else:
            groups[-1] += band
    return list(filter(None, groups))


def _gutter(lines: Sequence[Line]) -> float | None:
    """Returns where the fewest lines cross, in the widest gap between enough lines at both sides;
    `None` if there is none."""
    left, _, right, _ = around([line.bbox for line in lines] or [(0.0, 0.0, 0.0, 0.0)])
    low, high = (left + share * (right - left) for share in GUTTER)
    edges = {edge for line in lines for edge in line.bbox[::2] if low <= edge <= high}
    gaps = [
        (start - end, (start + end) / 2) for start, end in pairwise(sorted({*edges, low, high}))
    ]
    found = [
        (len(lines) - len(left) - len(right), gap, place)
        for gap, place in gaps
        for left, right in [_sides(lines, place)]
        if min(len(left), len(right)) >= COLUMN_LINES
    ]
    return min(found, default=(0, 0.0, None))[2]


def _sides(lines: Sequence[Line], place: float) -> tuple[list[Line], list[Line]]:
    left = [line for line in lines if line.bbox[2] <= place]
    return left, [line for line in lines if line.bbox[0] >= place]


def _is_prose(lines: Sequence[Line]) -> bool:
    """Returns whether lines are a column of text, or several."""
    alone = [row[0] for row in rows_of(lines) if len(row) == 1]
    prose = sum(len(line.text.split()) >= PROSE_WORDS for line in alone)
    return prose >= PROSE_LINES or len(text_columns(lines)) > 1


RANKS: dict[str, int] = {Label.PAGE_HEADER: 0, Label.PAGE_FOOTER: 2}

SLACK = 0.15
"""Part of a box's height or width that may reach over a cut: detected boxes are never exact."""

Item = tuple[Box, list[Region]]
"""A region, with those without a box that follow it."""


def in_reading_order(regions: Sequence[Region]) -> list[Region]:
    """Returns regions in reading order and numbered: columns from left to right, each from top to
    bottom; page headers first and page footers last.

    A recursive XY-cut. A gutter between columns that nothing crosses is cut first. Where something
    does cross it, such as a title or a footer, the page is cut above and below the most boxes that
    are free of it. What is left is read from top to bottom. Regions without a box stay behind the
    one before them.
    """
    head = takewhile(lambda region: region.bbox is None, regions)
    groups = runs(regions, lambda _, region: region.bbox is None)
    items = [(group[0].bbox, group) for group in groups if group[0].bbox is not None]
    ordered = sorted(_ordered(items), key=lambda item: RANKS.get(item[1][0].label, 1))
    return numbered([*head, *chain(*(group for _, group in ordered))])


def _ordered(items: list[Item]) -> list[Item]:
    parts = (_columns(items) or _split(items)) if items else None
    if parts:
        return [item for part in parts for item in _ordered(part)]
    return sorted(items, key=lambda item: (item[0][1], item[0][0]))


def _columns(items: list[Item]) -> list[list[Item]] | None:
    """Parts to the left and right of gutters, if these really are beside each other."""
    columns = _cut(items, 0)
    frames = [around(box for box, _ in column) for column in columns]
    is_beside = max(frame[1] for frame in frames) < min(frame[3] for frame in frames)
    return columns if len(columns) > 1 and is_beside else None


def _split(items: list[Item]) -> list[list[Item]] | None:
    """Returns cuts from left to right, above and below the most boxes that then are in columns."""
    bands = _cut(items, 1)
    if len(bands) == len(items):  # nothing is beside anything
        return None
    ranges = combinations(range(len(bands) + 1), 2)
    for start, end in sorted(ranges, key=lambda ends: -sum(map(len, bands[slice(*ends)]))):
        parts = [list(chain(*run)) for run in (bands[:start], bands[start:end], bands[end:])]
        if len(parts[1]) < len(items) and _columns(parts[1]):
            return [part for part in parts if part]
    return None


def _cut(items: list[Item], axis: int) -> list[list[Item]]:
    """Returns groups along an axis (0: x, 1: y) with nothing between them."""

    def reaches(group: list[Item], item: Item) -> bool:
        box, end = item[0], max(other[axis + 2] for other, _ in group)
        return box[axis] < end - SLACK * min(box[axis + 2] - box[axis], box[3] - box[1])

    return runs(sorted(items, key=lambda item: item[0][axis]), reaches)


EDGE, NUMBER_EDGE = 0.07, 0.12
"""Shares of the page's height, above and below, where headers and footers are, and where a page's
number alone is, which may be as large as a heading."""

PAGE_NUMBER = re.compile(
    r"(?:page )?[-\u2013 ]*(?:\d{1,4}|[ivxl]{1,6})[-\u2013 ]*(?:(?:of|/) ?\d+)?", re.I
)

TITLE_SIZE, HEADING_SIZE, BOLD_SIZE, BOLD_LEVEL = 1.5, 1.15, 0.9, 3
"""Sizes of a title, of a heading, and of one that is told by its weight, in sizes of the text; and
the level of the last one."""

HEADING_WORDS, FOOTER_WORDS, CELL_WORDS, PAIR_WORDS = 16, 6, 4.0, 2.5
"""Words at most of a heading, of a footer, and of a table's cell: with more than two columns, and
with two; with more words it is text in columns."""

MOSTLY = 0.8
"""Share of a page's characters in a monospaced font from which they are its text, not code."""

FUNCTIONS = frozenset(["sin", "cos", "tan", "log", "exp", "lim", "max", "min", "det", "mod"])
"""Words of formulas."""

CAPTIONED = re.compile(r"\s*(?:table|figure|fig\.?|chart|algorithm)\s*\d", re.IGNORECASE)


def regions_of(
    lines: Sequence[Line],
    size: Size,
    layout: Sequence[Region] = (),
    same_size: float = SAME_SIZE,
    tables: Sequence[Region] = (),
) -> list[Region]:
    """Returns regions in reading order.

    Lines within a layout box become a region of its label, tables with their cells; a box that
    holds several paragraphs or items is split into these. The rest is put together by its own
    arrangement: sizes, gaps, markers of lists, and cells above each other. Boxes that hold no line
    stay only if they are pictures.

    Args:
        lines: with boxes in pixels.
        size: width and height of the page, in pixels.
        layout: boxes that a layout model found, with their labels and scores.
        same_size: ratio of sizes up to which two lines are of one block.
        tables: regions of other lines of the page, and of its pictures.
    """
    inside, rest = _assigned(lines, layout)
    body = median_low([line.size for line in lines for _ in line.text] or [0.0])
    regions = list(tables)
    for entry, words in zip(layout, inside, strict=True):
        regions += _of_area(entry, words, body, same_size)
    letters = sum(len(line.text) for line in rest)
    if sum(len(line.text) for line in rest if line.mono) > MOSTLY * letters:
        rest = [replace(line, mono=False) for line in rest]  # typed, and no code
    regions += _arranged(rest, body, same_size, size)
    return in_reading_order(regions)


def _arranged(
    lines: Sequence[Line], body: float, same_size: float, page: Size | None = None
) -> list[Region]:
    """Returns lines as tables and blocks, by nothing but where they stand; see `_label`."""
    regions, rest = _tables(lines)
    for block in blocks_of(rest, same_size):
        is_code = all(line.mono for line in block)
        regions.append(_code(block) if is_code else _region(block, *_label(block, body, page)))
    return regions


def _assigned(
    lines: Sequence[Line], layout: Sequence[Region]
) -> tuple[list[list[Line]], list[Line]]:
    """Returns lines of each layout box, and those of none."""
    inside: list[list[Line]] = [[] for _ in layout]
    rest: list[Line] = []
    for line in lines:
        shares = [
            (overlap(entry.bbox, line.bbox), entry.confidence or 0.0, place)
            for place, entry in enumerate(layout)
            if entry.bbox is not None
        ]
        share, _, place = max(shares, default=(0.0, 0.0, -1))
        is_inside = share >= SAME_PLACE * max(area(line.bbox), 1.0)
        (inside[place] if is_inside and layout[place].label != Label.PICTURE else rest).append(line)
    return inside, rest


def _of_area(area: Region, lines: Sequence[Line], body: float, same_size: float) -> list[Region]:
    if area.label == Label.PICTURE:
        return [Region(area.bbox, Label.PICTURE)]
    if not lines:
        return []
    if area.label == Label.TABLE:
        return [_table(lines, area.bbox)]
    if area.label == Label.TEXT:
        return _arranged(lines, body, same_size)
    rows = rows_of(lines)
    if area.label == Label.FORMULA and len(rows) > 1 < min(map(len, rows)):
        return [_table(lines, area.bbox)]
    return [_region(list(chain(*rows)), area.label)]


def _label(block: Sequence[Line], body: float, page: Size | None) -> tuple[Label, int]:
    """Returns what a block is, and the level of a heading that is told by its weight.

    Without the size of its page, a layout model says that it is text, which may be an item, or a
    heading that it missed. Text on the page has the size `body`.
    """
    text, end, words = block[0].text, block[-1].text.rstrip(), _words(block)
    size, is_short = min(line.size for line in block), words <= HEADING_WORDS
    is_heading = size >= HEADING_SIZE * body and is_short and not end.endswith((".", ",", ";", ":"))
    plain = Label.LIST_ITEM if mark_of(text) else Label.TEXT
    plain = Label.FORMULA if is_formula(text) else plain
    if page is None:
        return Label.SECTION_HEADER if is_heading else plain, 0
    height, (top, bottom) = page[1], around(line.bbox for line in block)[1::2]
    is_line, is_large = len(block) == 1, size >= TITLE_SIZE * body and is_short
    is_number = is_line and PAGE_NUMBER.fullmatch(text) is not None
    is_bold = is_short and all(line.bold for line in block) and size > BOLD_SIZE * body
    conditions = (  # the first that holds counts
        (Label.CAPTION, CAPTIONED.match(text)),
        (Label.FORMULA, plain == Label.FORMULA),
        (Label.FOOTNOTE, NOTE.match(text) and max(line.size for line in block) < body),
        (Label.PAGE_FOOTER, is_number and top > (1 - NUMBER_EDGE) * height),
        (Label.PAGE_HEADER, is_number and top < NUMBER_EDGE * height),
        (Label.PAGE_HEADER, is_line and bottom < EDGE * height and not is_large),
        (Label.TITLE, is_heading and is_large and top < height / 2),
        (Label.SECTION_HEADER, is_heading),
        (Label.LIST_ITEM, plain == Label.LIST_ITEM),
        (Label.PAGE_FOOTER, words <= FOOTER_WORDS and top > (1 - EDGE) * height),
        (Label.SECTION_HEADER, is_bold and not end.endswith((".", ",", ";"))),
    )
    label = next((label for label, holds in conditions if holds), Label.TEXT)
    return label, BOLD_LEVEL if label == Label.SECTION_HEADER and not is_heading else 0


def is_formula(text: str) -> bool:
    """Returns whether a text is nothing but numbers, letters for numbers, and signs."""
    words = set(re.findall(r"[^\W\d_]{3,}", text)) - FUNCTIONS
    return (
        len(text.split()) > 2 and not words and re.search(r"[=<>≤≥≠≈+−×÷±∑∫√^]", text) is not None
    )


def _words(lines: Sequence[Line]) -> int:
    return sum(len(line.text.split()) for line in lines)


def _tables(lines: Sequence[Line]) -> tuple[list[Region], list[Line]]:
    """Returns runs of rows with cells above each other as tables, and the other lines. A file lists
    the cells of a row one after the other, and not the lines of columns of text."""
    rows = runs(lines, lambda row, line: common_share(row[-1].bbox, line.bbox, 1) > SAME_PLACE)
    tables, rest = list[Region](), list[Line]()
    for run in runs(rows, _follows):
        cells = list(chain(*run))
        if _is_table(run):
            tables.append(_table(cells))
        else:
            rest += cells
    return tables, rest


def _follows(rows: list[list[Line]], row: list[Line]) -> bool:
    upper, lower = (around(line.bbox for line in cells) for cells in (rows[-1], row))
    is_near = lower[1] - upper[3] <= ROW_GAP * (upper[3] - upper[1])
    return len(row) > 1 < len(rows[-1]) and is_near


def _is_table(rows: Sequence[Sequence[Line]]) -> bool:
    cells = list(chain(*rows))
    # Numbers of a list may be set apart from its items.
    is_list = all(mark_of(f"{row[0].text} x") and len(row) == 2 for row in rows)
    limit = CELL_WORDS if max(map(len, rows)) > 2 else PAIR_WORDS
    is_text = is_list or _words(cells) > limit * len(cells)
    return len(rows) > 1 and len(columns_of(cells)) > 1 and not is_text


def _table(lines: Sequence[Line], frame: Box | None = None) -> Region:
    boxes = [line.bbox for line in lines] + ([] if frame is None else [frame])
    return Region(around(boxes), Label.TABLE, 0, [table_text(lines)])


def _region(lines: Sequence[Line], label: str, level: int = 0, text: str | None = None) -> Region:
    """Returns lines as a region; its text is theirs if none is given."""
    draft = "\n".join(line.text for line in lines) if text is None else text
    confidence = min(line.confidence for line in lines)
    return Region(around(line.bbox for line in lines), label, 0, [draft], level, confidence)


def _code(lines: Sequence[Line]) -> Region:
    """Returns rows of code as a fenced Markdown block, with the indentation of the page."""
    left, text = around(line.bbox for line in lines)[0], list[str]()
    for row in rows_of(lines):
        blank, whole = CODE_BLANK * max(*(line.size for line in row), 1.0), ""
        for line in row:
            column = round((line.bbox[0] - left) / blank)
            whole += " " * max(column - len(whole), int(bool(whole))) + line.text
        text.append(whole)
    return _region(lines, Label.TEXT, text=fenced("\n".join(text)))
