"""Blocks and tables from lines of text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from .page import Line
from .regions import around, shared_height, shared_width

SAME_ROW = 0.5
"""Share of the lower box in which two words are beside each other."""

SAME_SIZE = 1.35
"""Ratio of sizes up to which two lines are of one block, if sizes are measured on a picture."""

LINE_GAP, MAX_LINE_GAP = 0.45, 0.95
"""Heights of a line that may be free between two lines of a block: always, and at most."""

INDENT = 0.8
"""Heights by which the first line of a paragraph starts further right."""

CODE_GAP, CODE_REACH = 1.6, 8.0
"""Heights that may be free between lines of code, and font sizes by which one may be set in."""

MARKER = re.compile(r"\s*(?:[•●▪◦‣∙·*\-–—○□■]|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,4})[.)])\s+\S")
"""How an item of a list begins."""

LONE_MARKER = re.compile(r"[•●▪◦‣∙·*\-–—○□■]|\(?(?:\d{1,2}|[a-z]|[ivx]{1,4})[.)]")
"""Such a beginning alone, which stands too far from its item to be of one line with it."""

NOTE = re.compile(r"<sup>[^<\s]{1,3}</sup>")
"""How a footnote begins."""

MARKER_GAP = 4.0
"""Heights of a line between a mark and its item at most."""

Block = list[Line]
"""Lines of a paragraph, a heading or an item, from top to bottom."""


def with_markers(lines: Sequence[Line]) -> list[Line]:
    """Returns lines, with marks of lists that stand alone put in front of their items."""
    marks = [line for line in lines if LONE_MARKER.fullmatch(line.text)]
    result = [line for line in lines if not LONE_MARKER.fullmatch(line.text)]
    for mark in marks:
        right = [
            (line.bbox[0] - mark.bbox[2], place)
            for place, line in enumerate(result)
            if 0 <= line.bbox[0] - mark.bbox[2] < MARKER_GAP * line.size
            and shared_height(mark.bbox, line.bbox) > SAME_ROW
        ]
        if right:
            place = min(right)[1]
            line = result[place]
            bbox = around([mark.bbox, line.bbox])
            result[place] = replace(line, text=f"{mark.text} {line.text}", bbox=bbox)
        else:
            result.append(mark)
    return result


def rows_of(lines: Iterable[Line]) -> list[list[Line]]:
    """Returns lines beside each other, from top to bottom, each row from left to right."""
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: line.bbox[1] + line.bbox[3]):
        if rows and any(shared_height(other.bbox, line.bbox) > SAME_ROW for other in rows[-1]):
            rows[-1].append(line)
        else:
            rows.append([line])
    return [sorted(row, key=lambda line: line.bbox[0]) for row in rows]


def blocks_of(lines: Sequence[Line], same_size: float = SAME_SIZE) -> list[Block]:
    """Puts lines together to paragraphs, headings and items of lists, in no special order."""
    usual = _usual_gap(lines)
    blocks: list[Block] = []
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
        below = [
            other.bbox[1] - line.bbox[3]
            for other in lines
            if other.bbox[1] > (line.bbox[1] + line.bbox[3]) / 2
            and shared_width(line.bbox, other.bbox) > SAME_ROW
        ]
        if below:
            gaps.append(max(min(below), 0.0) / max(line.bbox[3] - line.bbox[1], 1.0))
    return sorted(gaps)[len(gaps) // 4] if gaps else 0.0


def _continues(block: Block, line: Line, usual: float, same_size: float) -> bool:
    last, first = block[-1], block[0]
    height = last.bbox[3] - last.bbox[1]
    limit = min(max(LINE_GAP, 1.5 * usual), MAX_LINE_GAP) * height
    gap = line.bbox[1] - last.bbox[3]
    if last.mono and line.mono:
        is_below = line.bbox[0] < around(other.bbox for other in block)[2] + CODE_REACH * last.size
        return (
            -0.5 * height < gap <= CODE_GAP * height and is_below and line.bbox[2] > first.bbox[0]
        )
    if not -0.5 * height < gap <= limit or shared_width(last.bbox, line.bbox) < SAME_ROW:
        return False
    if max(last.size, line.size) > same_size * min(last.size, line.size):
        return False
    if last.bold != line.bold or is_item(line.text):
        return False
    if NOTE.match(line.text) and NOTE.match(first.text):
        return False
    if last.mono != line.mono and abs(line.bbox[0] - first.bbox[0]) > INDENT * height:
        return False  # code, set in from the text around it
    left = min(other.bbox[0] for other in block)
    if len(block) == 1 or is_item(first.text):
        return True
    is_outside = line.bbox[0] < left - INDENT * height
    return not is_outside and line.bbox[0] <= left + INDENT * height


def min_confidence(lines: Iterable[Line]) -> float | None:
    """That of the line which is the least sure; `None` if nobody says one of them."""
    known = [line.confidence for line in lines]
    return None if None in known else min(value for value in known if value is not None)


def is_item(text: str) -> bool:
    """Returns whether a text begins as an item of a list does."""
    return MARKER.match(text) is not None


def table_text(lines: Sequence[Line]) -> str:
    """Returns a table as rows of cells with tabs between them; cells keep their columns."""
    edges = column_edges(lines)
    rows = ([" ".join(cell) for cell in in_cells([row], edges)] for row in rows_of(lines))
    return "\n".join("\t".join(cells) for cells in rows)


def in_cells(rows: Iterable[Sequence[Line]], edges: Sequence[float]) -> list[list[str]]:
    """Returns the texts of the cells between edges, each row's as one."""
    cells: list[list[str]] = [[] for _ in range(len(edges) + 1)]
    for row in rows:
        texts: dict[int, list[str]] = {}
        for line in row:
            place = sum(edge < (line.bbox[0] + line.bbox[2]) / 2 for edge in edges)
            texts.setdefault(place, []).append(line.text)
        for place, words in texts.items():
            cells[place].append(" ".join(words))
    return cells


def column_edges(lines: Iterable[Line]) -> list[float]:
    """Returns the middles of what is free between columns."""
    return [(edge[1] + other[0]) / 2 for edge, other in pairwise(column_spans(lines))]


def column_spans(lines: Iterable[Line]) -> list[tuple[float, float]]:
    """Returns from where to where columns go, with nothing between them."""
    spans: list[tuple[float, float]] = []
    for start, end in sorted((line.bbox[0], line.bbox[2]) for line in lines):
        if spans and start < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        else:
            spans.append((start, end))
    return spans
