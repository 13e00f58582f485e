"""Footnotes as Markdown links them: a superscript in the text, and the note that begins with it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from .regions import CAPTION, FOOTNOTE, LIST_ITEM, SECTION_HEADER, TEXT, TITLE

MARK = re.compile(r"(?:(?<=[^\W\d_]{2})|(?<=[.,;:!?)\]\u201d\u2019\"']))<sup>([^<\s]{1,3})</sup>")
"""A mark behind a word or a sentence; behind a number or a letter alone it may be a power."""

NOTE = re.compile(r"<sup>([^<\s]{1,3})</sup>[ \t]*")
"""How a footnote begins."""

MARKED = (TITLE, SECTION_HEADER, TEXT, LIST_ITEM, CAPTION)
"""Labels of regions whose marks have notes at the foot of the page."""


def linked_marks(regions: Sequence[tuple[str, str]]) -> frozenset[str]:
    """Returns marks of a page that stand once in its text, and once begin a footnote behind it.

    Args:
        regions: label and text of each, in reading order.
    """
    marks, notes = Counter[str](), Counter[str]()
    for label, text in regions:
        if label == FOOTNOTE:
            notes.update(match[1] for match in [NOTE.match(text)] if match and match[1] in marks)
        elif label in MARKED:
            marks.update(match[1] for match in MARK.finditer(text))
    return frozenset(mark for mark, count in notes.items() if count == marks[mark] == 1)


def with_links(text: str, label: str, marks: frozenset[str], page: int) -> str:
    """Returns a region's Markdown with links in the place of those marks; other superscripts stay.

    Args:
        text: of the region.
        label: of the region.
        marks: those of `linked_marks`.
        page: its number, which makes the links of a document distinct.
    """
    start = NOTE.match(text) if label == FOOTNOTE else None
    if start is not None and start[1] in marks:
        return f"[^{page}-{start[1]}]: {text[start.end() :]}"
    if label not in MARKED:
        return text
    return MARK.sub(lambda match: f"[^{page}-{match[1]}]" if match[1] in marks else match[0], text)
