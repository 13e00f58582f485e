"""DocLang, as granite-for-docling writes it: elements with locations on a grid of 512.

Source: docling-core's serializer of DocLang without indentation, and transformers' documentation of
the model.
"""

from __future__ import annotations

import html
import re

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
from .base import placed
from .doctags import DocTags, Tree, parts_of

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

NAMES = {
    **{name: name for name in ("text", "formula", "picture", "caption", "footnote", "code")},
    **{name: name for name in ("page_header", "page_footer")},
    "doclang": "doctag",
    "table": "otsl",
}
"""Elements by their tags in DocTags."""

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

    def tree(self, text: str) -> Tree:
        """Returns the elements of an answer, by the tags of DocTags that mean the same."""
        reader, at = _Reader(), 0
        text = CUT.sub("", text) if "<![CDATA[" not in text[text.rfind("<") :] else text
        for piece in PIECE.finditer(text):
            reader.text(html.unescape(text[at : piece.start()]))
            at = piece.end()
            if piece["data"] is not None:
                reader.text(piece["data"])
            else:
                reader.markup(piece["tag"])
        reader.text(html.unescape(text[at:]))
        reader.end()
        return reader


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


class _Reader(Tree):
    """Reads one tag of DocLang after another."""

    def __init__(self) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.list, self.is_item = "unordered_list", False

    def markup(self, tag: str) -> None:
        match = re.match(r"/?(\w+)", tag)
        assert match is not None
        name, closes = match[1], tag.startswith("/")
        attributes = dict(ATTRIBUTE.findall(tag))
        if name == "location":
            if (value := attributes.get("value", "")).isdecimal():
                self.place(int(value))
        elif name == "heading":
            self.tag(self._heading(attributes, closes), closes)
        elif name == "ldiv":
            self._item(closes)
        elif name == "list":
            if closes and self.is_item:
                self.tag("list_item", True)
            if not closes:
                is_ordered = attributes.get("class") == "ordered"
                self.list = "ordered_list" if is_ordered else "unordered_list"
            self.is_item = False
            self.tag(self.list, closes)
        elif OTSL.fullmatch(f"<{name}>"):
            self.text(f"<{name}>")
        elif name in NAMES:
            self.tag(NAMES[name], closes)
        elif name not in DROPPED:
            self.text(f"<{tag}>")

    def _heading(self, attributes: dict[str, str], closes: bool) -> str:
        if closes:
            return self.headings.pop() if self.headings else "title"
        level = attributes.get("level", "1")
        number = min(max(int(level), 1), 6) if level.isdecimal() else 1
        self.headings.append("title" if number == 1 else f"section_header_level_{number - 1}")
        return self.headings[-1]

    def _item(self, closes: bool) -> None:
        """A mark in front of an item ends the item before it."""
        if closes:
            self.text(" ")  # behind a marker
            return
        if self.is_item:
            self.tag("list_item", True)
        self.is_item = True
        self.tag("list_item", False)
