"""Whether a block goes on on the next page, and both as one.

A wrong join is worse than none. A paragraph goes on if it stops within a sentence and the next
block begins in small letters, or a divided word does. A table goes on if the next page begins with
one of as many columns that repeats its head, or that has none and stands at the same edges.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ....documents.serialise import BULLET, FENCE, HEADING, NUMBER
from ....documents.tables import RULE, Table, grid, read_table


class Whole(NamedTuple):
    """Holds two blocks as one.

    Attributes:
        text: of both.
        cut: where the first one's part ends in it.
        start: where the second one's part begins.
    """

    text: str
    cut: int
    start: int


DIVIDED = re.compile(r"[^\W\d_][-\u2010\u00ad]$")

STOPS_WITHIN = re.compile(r"(?:[^\W\d_]|[,\-\u2010-\u2015)\]])$")
"""A letter, comma, dash or bracket: within a sentence. Numbers may be of a page or of a line in a
table of contents, so they don't count."""

OPENING = "([\"'“‘«"
"""What may stand before a sentence's small letter."""

NOTE = re.compile(r"\s*(?:\d{1,3}|[*†‡§¶]|[¹²³⁴⁵-⁹]|\[\d{1,3}\]|\$\^|<sup>|\(\d{1,3}\))")
"""How footnotes begin, where nobody marked them as such."""

FEWEST_BEFORE, FEWEST_AFTER = 8, 5
"""Words that both sides must have, unless a word is divided."""

MARKS = ("|", "<", "![", "$$", "\\[", FENCE)
"""How other things than sentences begin."""

SENTENCE_WORD = re.compile(
    r"[*_\"'“”‘’«»(\[]*[^\W_]+(?:['’.,\-\u2010-\u2015/][^\W_]+)*"
    r"[*_\"'“”‘’«»)\].,;:!?…%\-\u2010-\u2015]*|[–—&-]"
)

OPERATOR = re.compile(r"[^\w\s\"'“”‘’.,;:!?…–—&()-]+")
"""A word of signs, as in code and formulas."""

NEAR_WORDS, LAST_WORDS, PROSE = 12, 3, 0.85
"""Words of each side that are looked at, those at the break that must all be words of a language,
and the share of the others that must be."""


def joined_paragraph(text: str, following: str, after_text: bool = False) -> Whole | None:
    """Returns a paragraph or an item of a list, and the rest of it.

    Args:
        after_text: `text` stands below a paragraph, and therefore does not go on from elsewhere.
    """
    before, after = text.rstrip(), following.lstrip()
    is_small = after.lstrip(OPENING)[:1].islower()
    if not before or not is_small or NUMBER.match(after):
        return None
    last = before.split("\n")[-1]
    is_item = BULLET.match(last) or NUMBER.match(last)
    if HEADING.match(last) or (NOTE.match(last) and not is_item):
        return None
    if FENCE in before or FENCE in after or last.startswith(MARKS):
        return None
    if after_text and last[:1].islower():
        return None  # terms with their meanings, or lines of code
    ends, begins = last.split()[-NEAR_WORDS:], after.split()[:NEAR_WORDS]
    around = [*ends[-LAST_WORDS:], begins[0]]
    if not _is_prose(ends) or not _is_prose(begins) or not all(map(_is_word, around)):
        return None
    if DIVIDED.search(before):
        return Whole(f"{before[:-1]}{after}", len(before) - 1, len(before) - 1)
    if len(ends) < FEWEST_BEFORE or len(begins) < FEWEST_AFTER:
        return None
    if not STOPS_WITHIN.search(before):
        return None
    return Whole(f"{before} {after}", len(before), len(before) + 1)


def _is_word(text: str) -> bool:
    return SENTENCE_WORD.fullmatch(text) is not None


def _is_prose(words: list[str]) -> bool:
    known = sum(map(_is_word, words))
    return known >= PROSE * len(words) and not any(map(OPERATOR.fullmatch, words))


CONTINUES = re.compile(
    r"[#*_(\[ ]*(?:table\s[\w.\-]+\s?[:.,\u2010-\u2015-]?\s*)?[*_(\[ ]*(?:to be )?"
    r"cont(?:inue[sd]?|['’]d|d?\.)(?: (?:on|from|to)\b[\w ]{0,40})?[)\].…*_ ]*",
    re.IGNORECASE,
)
"""`Table 1 - continued from previous page`, `(continues on next page)`, `Table 3 (cont.)`."""


def joined_table(text: str, following: str, is_placed: bool) -> Whole | None:
    """Returns a table and its further rows, a repeated head left out.

    Args:
        is_placed: the second one stands where the first one does, or a page says that it goes on.
    """
    table, more = read_table(text), read_table(following)
    columns = _columns(table)
    if columns < 2 or columns != _columns(more):
        return None
    repeated = min(_repeated(grid(table), grid(more)), _heads(table, text))
    is_headless = is_placed and "<th" not in following.lower() and _is_headless(table, more)
    rows = _rows(following, len(more))
    if repeated == len(more) or not (repeated or is_headless) or rows is None:
        return None
    whole = _extended(text.rstrip(), rows[repeated:])
    return None if whole is None else Whole(whole, 0, 0)


def _columns(table: Table) -> int:
    """Columns, if all rows have as many; else 0."""
    widths = {len(row) for row in grid(table)}
    spans = {sum(cell.columns for cell in row) for row in table}
    is_even = len(spans) == 1 or any(cell.rows > 1 for row in table for cell in row)
    return widths.pop() if len(widths) == 1 and is_even else 0


def _heads(table: Table, text: str) -> int:
    """Returns rows of a table's head: those that HTML marks, or that its first row reaches
    down to.
    """
    marked = [("<th" in row.lower()) for row in ROW.findall(text)]
    count = marked.index(False) if False in marked else len(marked)
    return max(1, count, *(cell.rows for cell in table[0]))


def _key(row: list[str]) -> list[str]:
    return [" ".join(cell.casefold().split()) for cell in row]


def _repeated(first: list[list[str]], second: list[list[str]]) -> int:
    """Returns rows with which both begin."""
    count = 0
    for cell, other in zip(first[:-1], second, strict=False):
        if _key(cell) != _key(other) or not any(_key(cell)):
            break
        count += 1
    return count


def _is_headless(table: Table, more: Table) -> bool:
    """Returns whether the second table has no head of its own."""
    head, *body = grid(table)
    begins, *rest = grid(more)
    if any(a == b != "" for a, b in zip(_key(head), _key(begins), strict=True)):
        return False  # partly the same head: another table of that kind
    return not any(
        _mostly_numbers([row[column] for row in body + rest]) and _is_label(begins[column])
        for column in range(len(head))
    )


def _mostly_numbers(cells: list[str]) -> bool:
    filled = [cell for cell in cells if cell.strip()]
    return bool(filled) and sum(any(map(str.isdigit, cell)) for cell in filled) > len(filled) / 2


def _is_label(cell: str) -> bool:
    return bool(cell.strip()) and not any(map(str.isdigit, cell))


ROW = re.compile(r"<tr\b.*?</tr\s*>", re.IGNORECASE | re.DOTALL)

END = re.compile(r"\s*(?:</tbody\s*>\s*)?</table\s*>\s*$", re.IGNORECASE)


def _rows(text: str, count: int) -> list[str] | None:
    """Returns a table's rows as they are written; `None` if they can't be told apart."""
    if ROW.search(text):
        rows = ROW.findall(text)
    else:
        rows = [line for line in text.splitlines() if line.strip() and not RULE.fullmatch(line)]
    return rows if len(rows) == count else None


def _extended(text: str, rows: list[str]) -> str | None:
    """Returns a table with rows behind its own, if both are written in the same form."""
    is_html = ROW.search(text) is not None
    if any(is_html != (ROW.fullmatch(row) is not None) for row in rows):
        return None
    if not is_html:
        has_pipes = all("|" in line for line in text.splitlines())
        return "\n".join([text, *rows]) if all(has_pipes == ("|" in row) for row in rows) else None
    end = END.search(text)
    if end is None:
        return None
    between = "\n" if "\n" in text else ""
    return f"{text[: end.start()]}{between}{between.join(rows)}{text[end.start() :]}"
