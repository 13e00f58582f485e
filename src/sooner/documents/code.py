"""Finds program code among the lines of a page, by its monospaced font."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from .lines import blocks_of, min_confidence, rows_of
from .page import Line
from .pdf_lines import CODE_BLANK
from .regions import TEXT, Region, around, shared_height
from .serialise import FENCE

MOSTLY = 0.8
"""Share of a page's characters in a monospaced font from which they are its text, not code."""

ROW_GAP = 1.6
"""Heights of a line that may be free between two rows of code; an empty one is kept."""

SIDE_GAP = 8.0
"""Font sizes between parts of one listing beside each other."""


def is_typed(lines: Sequence[Line]) -> bool:
    """Returns whether a whole page is set in a monospaced font."""
    letters = sum(len(line.text) for line in lines)
    return sum(len(line.text) for line in lines if line.mono) > MOSTLY * max(letters, 1)


def code_of(lines: Sequence[Line], same_size: float) -> tuple[list[list[Line]], list[Line]]:
    """Returns blocks of code, and the other lines.

    Typed words alone in a paragraph are no code, nor are those that a file lists each with a text
    beside it, as in reference cards.
    """
    keys = {id(line) for line, following in pairwise(lines) if _is_key(line, following)}
    listings: list[list[Line]] = []
    for block in blocks_of(lines, same_size):
        letters = sum(len(line.text) for line in block)
        is_typed = 2 * sum(len(line.text) for line in block if line.mono) > letters
        if not is_typed or 2 * sum(id(line) in keys for line in block) > len(block):
            continue
        near = [item for item in listings if _is_near(item, block)]
        listings = [item for item in listings if not any(item is other for other in near)]
        listings.append([line for item in near for line in item] + list(block))
    used = {id(line) for listing in listings for line in listing}
    return listings, [line for line in lines if id(line) not in used]


def _is_key(line: Line, following: Line) -> bool:
    """Returns whether a typed line has a text of another font right beside it."""
    is_right = following.bbox[0] >= line.bbox[2] and shared_height(line.bbox, following.bbox) > 0.5
    return line.mono and not following.mono and is_right


def _is_near(listing: Sequence[Line], block: Sequence[Line]) -> bool:
    """Returns whether a block of code goes on below a listing, or beside it."""
    upper, lower = (around(line.bbox for line in lines) for lines in (listing, block))
    size = max(line.size for line in block)
    down = max(lower[1] - upper[3], upper[1] - lower[3])
    across = max(lower[0] - upper[2], upper[0] - lower[2])
    return down <= ROW_GAP * size and across <= SIDE_GAP * size


def code_region(lines: Sequence[Line]) -> Region:
    """Returns rows of code as a fenced Markdown block, with the indentation of the page."""
    box = around(line.bbox for line in lines)
    rows, text = rows_of(lines), []
    bottom: float | None = None
    for row in rows:
        top = min(line.bbox[1] for line in row)
        size = max(max(line.size for line in row), 1.0)
        if bottom is not None and top - bottom > 0.8 * size:
            text.append("")
        bottom = max(line.bbox[3] for line in row)
        text.append(_typed(row, box[0], CODE_BLANK * size))
    draft = "\n".join([FENCE, *text, FENCE])
    return Region(box, TEXT, 0, [draft], confidence=min_confidence(lines))


def _typed(row: Sequence[Line], left: float, blank: float) -> str:
    """Returns a row with its gaps as blanks, one for each character's width."""
    text = ""
    for line in row:
        column = round((line.bbox[0] - left) / blank)
        text += " " * max(column - len(text), int(bool(text))) + line.text
    return text
