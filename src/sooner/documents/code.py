"""Finds program code among the lines of a page, by its monospaced font."""

from __future__ import annotations

from collections.abc import Sequence

from .lines import least_confidence, rows_of
from .page import Line
from .pdf_text import CODE_BLANK
from .regions import TEXT, Region, around

MOSTLY = 0.8
"""Share of a page's characters in a monospaced font from which they are its text, not code."""

ROW_GAP = 1.6
"""Heights of a line that may be free between two rows of code; an empty one is kept."""

FENCE = "```"


def is_typed(lines: Sequence[Line]) -> bool:
    """Whether a whole page is set in a monospaced font."""
    letters = sum(len(line.text) for line in lines)
    return sum(len(line.text) for line in lines if line.mono) > MOSTLY * max(letters, 1)


def code_of(lines: Sequence[Line]) -> tuple[list[list[Line]], list[Line]]:
    """Runs of rows that are code, from top to bottom, and the other lines.

    A row is code if most of its letters are: numbers of its lines may be in another font.
    """
    runs: list[list[Line]] = []
    others: list[Line] = []
    goes_on = False
    for row in rows_of(lines):
        letters = sum(len(line.text) for line in row)
        is_code = 2 * sum(len(line.text) for line in row if line.mono) > letters
        if not is_code:
            others += row
        elif goes_on and _follows(runs[-1], row):
            runs[-1] += row
        else:
            runs.append(list(row))
        goes_on = is_code
    return runs, others


def _follows(run: Sequence[Line], row: Sequence[Line]) -> bool:
    upper = around(line.bbox for line in run)
    lower = around(line.bbox for line in row)
    return lower[1] - upper[3] <= ROW_GAP * max(line.size for line in row)


def code_region(lines: Sequence[Line]) -> Region:
    """Rows of code as a fenced Markdown block, with the indentation of the page."""
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
    return Region(box, TEXT, 0, [draft], confidence=least_confidence(lines))


def _typed(row: Sequence[Line], left: float, blank: float) -> str:
    """A row with its gaps as blanks, one for each character's width."""
    text = ""
    for line in row:
        column = round((line.bbox[0] - left) / blank)
        text += " " * max(column - len(text), int(bool(text))) + line.text
    return text
