"""Text as Markdown that is read as that text: what begins a line like a mark gets a backslash."""

from __future__ import annotations

import re

from .regions import CAPTION, FOOTNOTE, FURNITURE, TEXT
from .serialise import FENCE

PROSE = (TEXT, CAPTION, FOOTNOTE, *FURNITURE)
"""Labels of regions whose text has no marks of its own."""

MARK = re.compile(
    r"^(?=[#]{1,6}(?:\s|$)|>|[-+*](?:\s|$)|~{3}|\||(?:-{3,}|={3,}|\*{3,}|_{3,})\s*$"
    r"|</?[A-Za-z](?!u[bp]>)|<[!?])",
    re.MULTILINE,
)
"""Begins of headings, quotes, items, fences, tables, rules and HTML, superscripts apart. Numbers
are left alone: a list shows them as they are."""


def escaped(text: str) -> str:
    """Returns the text with a backslash before each mark at a line's beginning; code stays as it
    is.
    """
    return text if FENCE in text else MARK.sub(r"\\", text)
