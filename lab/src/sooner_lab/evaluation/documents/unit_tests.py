"""Unit tests of a page's Markdown, as olmOCR-Bench defines them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from ..libraries import needed
from .cells import CellTable, Side, TableCell, tables_of

Record = Mapping[str, Any]

DASHES_AND_QUOTES = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a", "'"),
        **dict.fromkeys("\u201c\u201d\u201e", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
        "\uff3f": "_",
        "\u00b5": "\u03bc",
    }
)
MARKS = (
    (re.compile(r"<br\s*/?>"), " "),
    (re.compile(r"</?[bi]>"), ""),
    (re.compile(r"(\*\*|__)(.*?)\1"), r"\2"),
    (re.compile(r"([*_])(.*?)\1"), r"\2"),
    (re.compile(r"\s+"), " "),
)
DISALLOWED = re.compile("[\u3040-\u30ff\u4e00-\u9fff\U0001f1e6-\U0001f1ff\U0001f300-\U0001f6ff]")
"""Chinese, Japanese and pictures: no page of the benchmark has any."""

ALIKE = 0.5
"""Least similarity of cells, however short they are."""

LONGEST_GRAM, MAX_REPEATS = 5, 30
NEIGHBOURS: tuple[Side, ...] = ("up", "down", "left", "right")


def normalised(text: str) -> str:
    """One line, without bold and italics, quotes and dashes in ASCII, NFC."""
    for pattern, instead in MARKS:
        text = pattern.sub(instead, text)
    return unicodedata.normalize("NFC", text).translate(DASHES_AND_QUOTES)


def present(test: Record, markdown: str) -> bool:
    """The text is on the page, but for `max_diffs` letters (rapidfuzz's partial ratio)."""
    text, page = normalised(test["text"]), normalised(markdown)
    if not test.get("case_sensitive", True):
        text, page = text.lower(), page.lower()
    page = _ends(page, test.get("first_n"), test.get("last_n"))
    diffs = test.get("max_diffs", 0)
    if len(page) < len(text) - diffs:
        return False  # the partial ratio would look for the page in the text
    fuzz = needed("rapidfuzz.fuzz", "tests of presence")
    # Compared as the official scorer does, whose rounding fails some pages at the very limit.
    return bool(fuzz.partial_ratio(text, page) / 100 >= 1 - diffs / max(len(text), 1))


def _ends(page: str, first: int | None, last: int | None) -> str:
    if first and last:
        return page[:first] + page[-last:]
    return page[:first] if first else page[-last:] if last else page


def absent(test: Record, markdown: str) -> bool:
    """The text, such as a running head, is not on the page."""
    return not present(test, markdown)


def order(test: Record, markdown: str) -> bool:
    """A place of one text is in front of a place of the other (fuzzysearch, `max_diffs`)."""
    find = needed("fuzzysearch", "tests of order").find_near_matches
    page, diffs = normalised(markdown), test.get("max_diffs", 0)
    before, after = (
        [hit.start for hit in find(normalised(test[name]), page, max_l_dist=diffs)]
        for name in ("before", "after")
    )
    return bool(before) and bool(after) and min(before) < max(after)


def table(test: Record, markdown: str) -> bool:
    """A cell of some table has the named neighbours and headings."""
    pipes = not test.get("ignore_markdown_tables")
    return any(
        _fits(test, cell_table, cell)
        for cell_table in tables_of(markdown, pipes)
        for cell in cell_table.cells
    )


def _fits(test: Record, cell_table: CellTable, cell: TableCell) -> bool:
    diffs = test.get("max_diffs", 0)
    if not _alike(test["cell"], cell, diffs):
        return False
    neighbours: dict[str, list[TableCell]] = {}
    for side in NEIGHBOURS:
        if test.get(side):
            neighbours[side] = cell_table.neighbours(cell, side)
    if test.get("top_heading"):
        neighbours["top_heading"] = cell_table.headings(cell, "up")
    if test.get("left_heading"):
        neighbours["left_heading"] = cell_table.headings(cell, "left")
    return all(
        any(_alike(test[name], neighbour, diffs) for neighbour in cells)
        for name, cells in neighbours.items()
    )


def _alike(text: str, cell: TableCell, diffs: int) -> bool:
    text = normalised(text)
    minimum = max(ALIKE, 1 - diffs / max(len(text), 1))
    fuzz = needed("rapidfuzz.fuzz", "tests of tables")
    return bool(fuzz.ratio(text, normalised(cell.text)) / 100 >= minimum)


def baseline(test: Record, markdown: str) -> bool:
    """The page says something, does not end in repetition, and has no foreign letters."""
    if test.get("max_length") is not None:
        return _letters(markdown) <= test["max_length"]
    if not _letters(markdown) or _repeats(markdown) > test.get("max_repeats", MAX_REPEATS):
        return False
    return not (test.get("check_disallowed_characters", True) and DISALLOWED.search(markdown))


def _letters(markdown: str) -> int:
    return sum(letter.isalnum() for letter in markdown)


def _repeats(text: str) -> int:
    """How often the last few letters repeat at the end, for the number of them that does most."""
    maximum = 0
    for size in range(1, LONGEST_GRAM + 1):
        gram, count = text[-size:], 0
        while text.endswith(gram * (count + 1)) and count <= len(text):
            count += 1
        maximum = max(maximum, count)
    return maximum


TESTS: Mapping[str, Callable[[Record, str], bool]] = {
    "present": present,
    "absent": absent,
    "order": order,
    "table": table,
    "baseline": baseline,
}
NEEDED: Mapping[str, tuple[str, ...]] = {
    "present": ("text",),
    "absent": ("text",),
    "order": ("before", "after"),
    "table": ("cell",),
    "baseline": (),
}
"""Fields that a test must have."""
