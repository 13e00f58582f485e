"""HTML in one `div` a block with its label and box, as Chandra writes it.

Source: the prompts, scale and reader of datalab's `chandra` (`prompts.py`, `output.py`).
"""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any, Literal

from ..regions import (
    CAPTION,
    FOOTNOTE,
    FORMULA,
    LIST_ITEM,
    PAGE_FOOTER,
    PAGE_HEADER,
    PICTURE,
    SECTION_HEADER,
    TABLE,
    TEXT,
    TITLE,
    Box,
    Region,
    Size,
    box,
)
from ..serialise import FENCE, bare_formula, html_element, reflowed
from .base import FormAnswer, PageForm, placed

NAMES = {
    TITLE: "Section-Header",
    SECTION_HEADER: "Section-Header",
    TEXT: "Text",
    LIST_ITEM: "List-Group",
    FORMULA: "Equation-Block",
    TABLE: "Table",
    PICTURE: "Image",
    CAPTION: "Caption",
    FOOTNOTE: "Footnote",
    PAGE_HEADER: "Page-Header",
    PAGE_FOOTER: "Page-Footer",
}

LABELS = {
    **{name: label for label, name in NAMES.items() if label != TITLE},
    "Figure": PICTURE,
    "Diagram": PICTURE,
    "Table-Of-Contents": TABLE,
}

BLOCK = re.compile(r"<div\b([^>]*\bdata-(?:bbox|label)=[^>]*)>", re.IGNORECASE)
"""How a block begins, which never stands in another one."""

ATTRIBUTES = re.compile(r"""data-(bbox|label)\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)

OPEN_TAG = re.compile(r"<[^<>]*$")

MATH = '<p><math display="block">{}</math></p>'


class Chandra(PageForm):
    """The form that writes a `div` for each block, one after the other.

    Args:
        side: width and height that boxes are said in: 1024 for Chandra 1, 1000 for 2.
        boxes: `"list"` for `[x0, y0, x1, y1]` (Chandra 1), `"blanks"` for numbers with blanks
            between them (2). Both are read.
    """

    has_boxes = True
    fences = ("html",)

    def __init__(self, side: int, boxes: Literal["list", "blanks"]) -> None:
        self.side, self.boxes = side, boxes
        self.frame = (side, side)

    def text_of(self, region: Region, draft: str) -> str:
        if region.label == PICTURE:
            return f'<img alt="{html.escape(reflowed(draft))}"/>'
        highest = replace(region, level=min(region.level, 5))
        return html_element(highest, draft, MATH, ordered=True)

    def element(self, region: Region, text: str, size: Size, seen: Size | None = None) -> str:
        attributes = ""
        if region.bbox is not None and 0 not in size:
            sides = placed(region.bbox, size, (self.side, self.side))
            listed = str(list(sides)) if self.boxes == "list" else " ".join(map(str, sides))
            attributes = f' data-bbox="{listed}"'
        return f'<div{attributes} data-label="{NAMES[region.label]}">{text}</div>'

    def between(self, region: Region, following: Region) -> str:
        return ""

    def read(self, text: str) -> FormAnswer:
        """Returns blocks, the last one as far as it goes; text outside of them is a block without a
        box.
        """
        outside, *blocks = BLOCK.split(text)
        entries = [(Region(None, drafts=[_plain(outside)]), outside.strip())]
        broken = bool(outside.strip())
        for attributes, content in zip(blocks[::2], blocks[1::2], strict=True):
            is_closed = content.count("</div>") > content.count("<div")
            inner, _, rest = content.rpartition("</div>")
            if not is_closed:
                inner, rest = OPEN_TAG.sub("", content), ""
            tags = ATTRIBUTES.finditer(attributes)
            block = {tag[1].lower(): tag[2] or tag[3] or "" for tag in tags}
            region = _region(block, inner)
            is_placed = region.bbox is not None or "bbox" not in block
            broken = broken or not is_closed or bool(rest.strip()) or not is_placed
            entries.append((region, inner.strip()))
            entries.append((Region(None, drafts=[_plain(rest)]), rest.strip()))
        return FormAnswer.of(entries, broken)


def _region(data: dict[str, str], inner: str) -> Region:
    label = LABELS.get(data.get("label", ""), TEXT)
    place = _box(data.get("bbox", ""))
    if label == TABLE and "<table" in inner.lower():
        return Region(place, label, drafts=[inner.strip()])
    heading = re.search(r"<h([1-6])\b", inner, re.IGNORECASE)
    level = int(heading[1]) if heading and label == SECTION_HEADER else 0
    if level == 1:
        label = TITLE
    text = _plain(inner)
    if label == FORMULA:
        text = bare_formula(text)
    return Region(place, label, 0, [text] if text else [], level)


def _box(text: str) -> Box | None:
    try:
        numbers = json.loads(text) if text.startswith("[") else [float(n) for n in text.split()]
        return box(numbers)
    except (ValueError, TypeError):
        return None


def _plain(inner: str) -> str:
    """Returns HTML as a drafter's text: paragraphs, items of lists, formulas in dollars, code."""
    reader = _Words()
    reader.feed(inner)
    reader.close()
    return re.sub(r"\n{3,}", "\n\n", reader.text).strip()


class _Words(HTMLParser):
    """Text of HTML with as much of Markdown as drafts have."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.lists: list[int | None] = []
        self.math: str | None = None
        self.is_code = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes: dict[str, Any] = dict(attrs)
        if tag == "math":
            self.math = "$$" if attributes.get("display") == "block" else "$"
            self.text += self.math
        elif tag == "br":
            self.text += "\n"
        elif tag == "img":
            self.text += attributes.get("alt") or ""
        elif tag in ("ul", "ol"):
            self.lists.append(0 if tag == "ol" else None)
        elif tag == "li":
            self._item()
        elif tag == "pre":
            self.text += f"{FENCE}\n"
            self.is_code = True

    def _item(self) -> None:
        count = self.lists[-1] if self.lists else None
        if count is not None:
            self.lists[-1] = count = count + 1
        begins = "" if not self.text or self.text.endswith("\n") else "\n"
        self.text += f"{begins}{'-' if count is None else f'{count}.'} "

    def handle_endtag(self, tag: str) -> None:
        if tag == "math" and self.math is not None:
            self.text += self.math
            self.math = None
        elif tag in ("ul", "ol") and self.lists:
            self.lists.pop()
        elif tag == "pre":
            self.text += f"\n{FENCE}"
            self.is_code = False
        elif tag in ("p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "div"):
            self.text = f"{self.text.rstrip()}\n\n"

    def handle_data(self, data: str) -> None:
        self.text += data if self.is_code or self.math else re.sub(r"\s+", " ", data)
