"""Answers without boxes: Markdown, also behind YAML front matter."""

from __future__ import annotations

import re

from ..regions import FORMULA, FURNITURE, LIST_ITEM, TABLE, Region, Size
from ..serialise import MARKDOWN, Style, bare_formula
from ..tables import is_otsl, read_table, to_html
from .base import PageForm


class Blocks(PageForm):
    """The form that Markdown has: blocks with blank lines between them.

    Args:
        style: of tables, formulas and headings.
    """

    style: Style
    is_plain = True

    def __init__(self, style: Style = MARKDOWN) -> None:
        self.style = style
        self.is_special = style.tables == "otsl"

    def texts(self, region: Region, size: Size, seen: Size | None = None) -> list[str]:
        if region.label in FURNITURE and not self.style.furniture:
            return []
        return super().texts(region, size, seen)

    def between(self, region: Region, following: Region) -> str:
        return "\n" if region.label == following.label == LIST_ITEM else "\n\n"

    def draft(self, text: str, label: str) -> str:
        text = super().draft(text, label)
        if label == TABLE and is_otsl(text):
            return to_html(read_table(text))
        return bare_formula(text) if label == FORMULA else text


MATTER = re.compile(r"\s*---[ \t]*\n(?P<matter>(?:[ \t]*[\w-]+[ \t]*:[^\n]*\n)*?)---[ \t]*(?:\n|$)")


class FrontMatter(Blocks):
    """Markdown with YAML in front of it, which says what sort of page it is.

    Answers of olmOCR begin so (Poznanski et al., 2025; its repository's `prompts.py`): language,
    whether the page stands upright, and whether it is all table or diagram.

    Args:
        style: of what follows.
        language: that a draft claims, in two letters.
    """

    is_plain = False

    def __init__(self, style: Style, language: str = "en") -> None:
        super().__init__(style)
        self.language = language

    def start(self, first: Region) -> str:
        is_table = first.label == TABLE
        return (
            f"---\nprimary_language: {self.language}\nis_rotation_valid: True\n"
            f"rotation_correction: 0\nis_table: {is_table}\nis_diagram: False\n---\n"
        )

    def content(self, text: str) -> str:
        return self.body(text)

    def body(self, text: str) -> str:
        matter = MATTER.match(text)
        if matter is not None:
            return text[matter.end() :]
        # Cut off within it, there is no text yet.
        return "" if re.fullmatch(r"\s*---[ \t]*\n(?:[\w-]+[ \t]*:[^\n]*(?:\n|$))*", text) else text
