"""DocLang, as granite-for-docling writes it: elements with locations on a grid of 512.

Source: docling-core's serializer of DocLang without indentation, and transformers' documentation of
the model.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable

from ..regions import (
    CAPTION,
    FOOTNOTE,
    FORMULA,
    FURNITURE,
    LIST_ITEM,
    PAGE_FOOTER,
    PAGE_HEADER,
    PICTURE,
    SECTION_HEADER,
    TABLE,
    TEXT,
    TITLE,
    Region,
    Size,
)
from ..serialise import FENCE, NUMBER
from ..tables import OTSL
from .base import FormAnswer, placed
from .doctags import DocTags, parts_of

SIDE = 512

TAGS = {
    TITLE: "heading",
    SECTION_HEADER: "heading",
    TEXT: "text",
    LIST_ITEM: "ldiv",
    FORMULA: "formula",
    TABLE: "table",
    PICTURE: "picture",
    CAPTION: "caption",
    FOOTNOTE: "footnote",
    PAGE_HEADER: "page_header",
    PAGE_FOOTER: "page_footer",
}

PIECE = re.compile(r"<!\[CDATA\[(?P<data>.*?)(?:\]\]>|$)|<(?P<tag>/?[a-z_]+[^<>]*)>", re.S)

ATTRIBUTE = re.compile(r'(\w+)\s*=\s*"([^"]*)"')

CUT = re.compile(r"<[^<>]*$")

LESS = "\ue000"
"""Stands for `<` in texts while tags are read."""

PLAIN_TAGS = (
    *("text", "formula", "picture", "caption", "footnote", "page_header", "page_footer", "code"),
    "heading",
)

DROPPED = ("content", "layer", "label", "marker", "custom", "thread", "xref", "page_break", "group")


class DocLang(DocTags):
    """The form that writes elements with four `<location value="..."/>` each, tables in OTSL."""

    frame = (SIDE, SIDE)
    root, line = "doclang", ""

    def element(self, region: Region, text: str, size: Size, seen: Size | None = None) -> str:
        place = '<layer value="furniture"/>' if region.label in FURNITURE else ""
        if region.bbox is not None and 0 not in size:
            sides = placed(region.bbox, size, (SIDE, SIDE), SIDE - 1)
            place += "".join(f'<location value="{side}"/>' for side in sides)
        if region.label == LIST_ITEM:
            return "".join(f"{mark}{place}{_quoted(part)}" for mark, part in _items(text))
        parts = [_content(region, part) for part in parts_of(region, text)]
        name, attributes = _named(region, text)
        return "".join(f"<{name}{attributes}>{place}{part}</{name}>" for part in parts)

    def opened(self, name: str) -> str:
        return "" if not name else '<list class="ordered">' if name == "ordered_list" else "<list>"

    def closed(self, name: str) -> str:
        return "</list>" if name else ""

    def read(self, text: str) -> FormAnswer:
        """Reads the answer as DocTags, whose tags mean the same."""
        return super().read(_as_doctags(text))

    def restored(self, text: str) -> str:
        return text.replace(LESS, "<")


def _named(region: Region, text: str) -> tuple[str, str]:
    """Returns an element's name and attributes."""
    if region.label == SECTION_HEADER:
        return "heading", f' level="{min(max(region.level or 2, 1), 6)}"'
    if region.label == TEXT and text.lstrip().startswith(FENCE):
        return "code", ""
    return TAGS[region.label], ""


def _content(region: Region, part: str) -> str:
    if region.label in (TABLE, PICTURE):
        texts = OTSL.split(part)
        cells = zip(texts[1::2], texts[2::2], strict=True)
        return "".join(f"<{mark}/>{_quoted(words)}" for mark, words in cells)
    if part.startswith("<_unknown_>"):
        return f"<content>{_quoted(part.removeprefix('<_unknown_>'))}</content>"
    return _quoted(part)


def _items(text: str) -> list[tuple[str, str]]:
    """Returns what begins each item of a list, and its text."""
    region = Region(None, LIST_ITEM, drafts=[text])
    marks = [NUMBER.match(line) for line in text.strip().splitlines()]
    numbers = [mark[0].strip() for mark in marks if mark is not None]
    items = []
    for place, part in enumerate(parts_of(region, text)):
        number = numbers[place] if place < len(numbers) else ""
        items.append((f"<ldiv><marker>{number}</marker></ldiv>" if number else "<ldiv/>", part))
    return items


def _quoted(text: str) -> str:
    return f"<![CDATA[{text}]]>" if any(sign in text for sign in "<>&") else text


def _as_doctags(text: str) -> str:
    """Returns the same elements in DocTags, with `LESS` for what is no tag."""
    writer, at, result = _Tags(), 0, ""
    text = CUT.sub("", text) if "<![CDATA[" not in text[text.rfind("<") :] else text
    for piece in PIECE.finditer(text):
        result += _plain(text[at : piece.start()])
        data = piece["data"]
        result += data.replace("<", LESS) if data is not None else writer(piece["tag"])
        at = piece.end()
    return result + _plain(text[at:])


def _plain(text: str) -> str:
    return html.unescape(text).replace("<", LESS)


class _Tags:
    """Turns one tag after another into those of DocTags."""

    def __init__(self) -> None:
        self.headings: list[str] = []
        self.list = ""
        self.is_item = False

    def __call__(self, tag: str) -> str:
        name = re.match(r"/?\w+", tag)
        assert name is not None
        bare, closes = name[0].removeprefix("/"), tag.startswith("/")
        attributes = dict(ATTRIBUTE.findall(tag))
        rule: Callable[[dict[str, str], bool, bool], str] | None = getattr(self, f"_{bare}", None)
        if rule is not None:
            return rule(attributes, closes, tag.endswith("/"))
        if bare == "location":
            value = attributes.get("value", "")
            return f"<loc_{value}>" if value.isdecimal() else ""
        if bare in DROPPED:
            return ""
        if OTSL.fullmatch(f"<{bare}>") or bare in PLAIN_TAGS:
            return f"<{'/' if closes else ''}{bare}>"
        return f"{LESS}{tag}>"

    def _doclang(self, attributes: dict[str, str], closes: bool, empty: bool) -> str:
        return "</doctag>" if closes else "<doctag>"

    def _table(self, attributes: dict[str, str], closes: bool, empty: bool) -> str:
        return "</otsl>" if closes else "<otsl>"

    def _heading(self, attributes: dict[str, str], closes: bool, empty: bool) -> str:
        if closes:
            return f"</{self.headings.pop() if self.headings else 'title'}>"
        level = attributes.get("level", "1")
        number = min(max(int(level), 1), 6) if level.isdecimal() else 1
        self.headings.append("title" if number == 1 else f"section_header_level_{number - 1}")
        return f"<{self.headings[-1]}>"

    def _list(self, attributes: dict[str, str], closes: bool, empty: bool) -> str:
        if closes:
            ended = "</list_item>" if self.is_item else ""
            self.is_item, name = False, self.list or "unordered_list"
            self.list = ""
            return f"{ended}</{name}>"
        self.list = "ordered_list" if attributes.get("class") == "ordered" else "unordered_list"
        return f"<{self.list}>"

    def _ldiv(self, attributes: dict[str, str], closes: bool, empty: bool) -> str:
        if closes:
            return " "  # behind a marker
        ended = "</list_item>" if self.is_item else ""
        self.is_item = True
        return f"{ended}<list_item>"
