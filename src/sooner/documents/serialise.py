"""Regions in a target's own format, since drafts are compared token by token."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..checks import check_choice
from .regions import FURNITURE, Label, PageDraft, Region
from .tables import read_table, to_html, to_markdown_table, to_otsl, to_pipes

LINE_END = re.compile(r"[ \t]*\n[ \t]*")

HYPHENATED = re.compile(r"(?<=[^\W\d_])[-\u2010\u00ad]\n(?=[a-zß-öø-ÿά-ώа-џ])")
"""A word divided at the end of a line: letters before, a small letter after."""

WIDE = "\u0e00-\u0e7f\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"

BETWEEN_WIDE = re.compile(f"(?<=[{WIDE}])[ \t]*\n[ \t]*(?=[{WIDE}])")
"""Chinese, Japanese and Thai have no spaces between words, so none where a line ends."""

BULLETS = r"•●▪◦‣∙·*\-–—○□■"

BULLET = re.compile(rf"[ \t]*[{BULLETS}][ \t]+")

NUMBER = re.compile(r"[ \t]*\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,4})[.)][ \t]+")

NEXT_ITEM = re.compile(rf"\n(?={BULLET.pattern}|{NUMBER.pattern})")

HEADING = re.compile(r"(#{1,6})\s")

FENCE = "```"

WRAPPERS = (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"), ("$", "$"))


def reflowed(text: str) -> str:
    """Returns the lines of a paragraph as one, divided words whole again; blank lines and code
    stay."""
    if FENCE in text:
        return text.strip()
    return "\n\n".join(_joined(part) for part in re.split(r"\n[ \t]*\n", text.strip()))


def _joined(paragraph: str) -> str:
    whole = HYPHENATED.sub("", paragraph.strip())
    return LINE_END.sub(" ", BETWEEN_WIDE.sub("", whole))


def items(text: str) -> str:
    """Returns items of a list, each on a line that begins with `-` or its number."""
    return "\n".join(map(_item, NEXT_ITEM.split(text.strip()))) if text.strip() else ""


def mark_of(text: str) -> re.Match[str] | None:
    """Returns the bullet or number with which a text begins as an item of a list does."""
    return BULLET.match(text) or NUMBER.match(text)


def _item(text: str) -> str:
    mark, number = mark_of(text), NUMBER.match(text)
    begin = number[0].strip() if number else "-"
    return f"{begin} {_joined(text[mark.end() :] if mark else text)}"


def fenced(code: str, language: str = "") -> str:
    """Returns code in a fence, as Markdown has it."""
    return f"{FENCE}{language}\n{code}\n{FENCE}"


FENCED = re.compile(rf"{FENCE}[^\n]*\n((?:(?!{FENCE}).)*?)\n?(?:{FENCE})?", re.DOTALL)
"""A text that is nothing but code in a fence, which may be open."""


def bare_formula(text: str) -> str:
    """Returns LaTeX without dollars or brackets around it."""
    text = text.strip().strip("`").strip()
    for start, end in WRAPPERS:
        inner = text[len(start) : len(text) - len(end)]
        wrapped = text.startswith(start) and text.endswith(end) and len(text) > len(start + end)
        if wrapped and start not in inner:
            return inner.strip()
    return text


FORMULAS = {
    "dollars": "$${}$$",
    "spaced": "$$ {} $$",
    "lines": "$$\n{}\n$$",
    "brackets": "\\[{}\\]",
    "bracket-lines": "\\[\n{}\n\\]",
    "bare": "{}",
}

TABLES = {"markdown": to_markdown_table, "html": to_html, "otsl": to_otsl, "pipes": to_pipes}


@dataclass(frozen=True)
class Style:
    """How a target writes what is in a region.

    Args:
        tables: `"markdown"`, which are pipes, and HTML where a cell goes over several rows or
            columns; `"pipes"`, `"html"`, or `"otsl"`.
        formulas: LaTeX in `"dollars"` (`$$x$$`), `"spaced"` ones (`$$ x $$`), dollars on `"lines"`
            of their own, `"brackets"` (`\\[x\\]`), brackets on lines of their own
            (`"bracket-lines"`), or `"bare"`.
        headings: mark headings with `#`.
        furniture: write page headers and footers.

    Raises:
        SoonerError: an unknown way.
    """

    tables: Literal["markdown", "pipes", "html", "otsl"] = "markdown"
    formulas: Literal["dollars", "spaced", "lines", "brackets", "bracket-lines", "bare"] = "lines"
    headings: bool = True
    furniture: bool = True

    def __post_init__(self) -> None:
        check_choice("table style", self.tables, TABLES)
        check_choice("formula style", self.formulas, FORMULAS)


MARKDOWN = Style()

DOTS = Style(tables="html", formulas="dollars")
"""Texts within dots.ocr's JSON, as its prompt asks for them: LaTeX, HTML and Markdown."""


def written(region: Region, draft: str, style: Style = MARKDOWN) -> str:
    """One draft of a region as a target would write it; empty for a picture."""
    if region.label == Label.TABLE:
        table = read_table(draft)
        return TABLES[style.tables](table) if table else ""
    if region.label == Label.FORMULA:
        formula = bare_formula(draft)
        return FORMULAS[style.formulas].format(formula) if formula else ""
    if region.label == Label.LIST_ITEM:
        return items(draft)
    level = region.heading_level
    if not level or not style.headings:
        return reflowed(draft.lstrip("# ") if level else draft)
    text = reflowed(draft).replace("\n\n", " ")
    return text if HEADING.match(text) or not text else f"{'#' * min(max(level, 1), 6)} {text}"


def texts_of(region: Region, style: Style = MARKDOWN) -> list[str]:
    """Returns all drafts of a region, written and each once."""
    if region.label in FURNITURE and not style.furniture:
        return []
    texts = (written(region, draft, style) for draft in region.drafts)
    return [text for text in dict.fromkeys(texts) if text]


def draft_texts(draft: PageDraft, style: Style = MARKDOWN) -> list[str]:
    """Returns what a drafter of the engine gets for a page: one text for each draft of each region,
    as the target writes.
    """
    return [text for region in draft.regions for text in texts_of(region, style)]


def to_markdown(regions: Sequence[Region], style: Style = MARKDOWN) -> str:
    """Returns a page of first drafts, a blank line between two blocks."""
    text, before = "", ""
    for region in regions:
        for block in texts_of(region, style)[:1]:
            is_listed = before == region.label == Label.LIST_ITEM
            text += ("\n" if is_listed else "\n\n" if text else "") + block
            before = region.label
    return text + "\n" if text else ""
