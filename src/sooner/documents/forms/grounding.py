"""Elements behind tags with their label and box, as DeepSeek-OCR writes them.

Sources: transformers' documentation of `deepseek_ocr2` (prompts, boxes from 0 to 999), and
published answers (blanks, captions, tables).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

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
    around,
    label_of,
)
from ..serialise import Style, bare_formula
from .base import FormAnswer, PageForm, placed, stripped

NAMES = {
    TITLE: "title",
    SECTION_HEADER: "sub_title",
    TEXT: "text",
    LIST_ITEM: "text",
    FORMULA: "equation",
    TABLE: "table",
    PICTURE: "image",
    FOOTNOTE: "footnote",
    PAGE_HEADER: "header",
    PAGE_FOOTER: "footer",
}

OF_A_TABLE = re.compile(r"\s*tab(?:le|\b)|\s*表", re.IGNORECASE)

CENTRE = re.compile(r"</?center>", re.IGNORECASE)

HEADING = re.compile(r"(#{1,6})\s")

NUMBERS = re.compile(r"\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")

TAG = re.compile(r"<\|ref\|>(?P<name>.*?)<\|/ref\|>[ ]?<\|det\|>(?P<boxes>.*?)<\|/det\|>", re.S)
OPEN_END = re.compile(r"<\|ref\|>.*", re.S)
"""An element's tag, and the beginning of one that was cut off."""

CUT = re.compile(r"<\|?(?:/?(?:ref|det)\|?)?$|<\|/?(?:ref|det)\|>")
"""A tag, or a part of one, that is none of an element's."""


@dataclass(frozen=True)
class _Element:
    name: str
    box: Box | None
    text: str


class Grounding(PageForm):
    """The form whose elements begin with their label and box, and a line feed:
    `<|ref|>text<|/ref|><|det|>[[x0, y0, x1, y1]]<|/det|>`.

    Args:
        style: of the texts.
    """

    style: Style
    frame = (999, 999)
    has_boxes = True
    is_special = True

    def __init__(self, style: Style) -> None:
        self.style = style

    def element(self, region: Region, text: str, size: Size, seen: Size | None = None) -> str:
        place = ""
        if region.bbox is not None and 0 not in size:
            place = f"[{', '.join(map(str, placed(region.bbox, size, self.frame)))}]"
        if region.label == CAPTION and not OF_A_TABLE.match(text):
            text = f"<center>{text} </center>"
        tag = f"<|ref|>{_name(region, text)}<|/ref|><|det|>[{place}]<|/det|>"
        return f"{tag}\n" + ("\n" if region.label == TABLE else "") + text

    def between(self, region: Region, following: Region) -> str:
        if region.label == PICTURE:
            return "" if following.label == CAPTION else "  \n\n"
        return "\n\n" if region.label == FORMULA else "  \n\n"

    def read(self, text: str) -> FormAnswer:
        """Returns elements behind tags; text in front of the first one is an element without a box.

        A caption that stands between the tag of a table and its rows, as DeepSeek-OCR writes it,
        gives the rows to the table.
        """
        elements, repaired = self._elements(text)
        pairs = ((_region(item), item.text.strip()) for item in _with_tables(elements))
        return FormAnswer.of(pairs, repaired)

    def _elements(self, text: str) -> tuple[list[_Element], bool]:
        tags = list(TAG.finditer(text))
        head = text[: tags[0].start()] if tags else text
        repaired = bool(head.strip())
        elements = [_Element("text", None, CUT.sub("", head))] if repaired else []
        ends = [tag.start() for tag in tags[1:]] + [len(text)]
        for tag, end in zip(tags, ends, strict=False):
            content = text[tag.end() : end]
            whole_content = CUT.sub("", OPEN_END.sub("", content))
            repaired = repaired or whole_content != content
            boxes = list(_boxes(tag["boxes"]))
            repaired = repaired or (not boxes and bool(tag["boxes"].strip("[] ")))
            name = tag["name"].strip()
            elements.append(_Element(name, around(boxes) if boxes else None, whole_content))
        return elements, repaired


def _boxes(text: str) -> Iterator[Box]:
    for match in NUMBERS.finditer(text):
        x0, y0, x1, y1 = (float(number) for number in match.groups())
        yield min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)


def _name(region: Region, text: str) -> str:
    if region.label == CAPTION:
        return "table_caption" if OF_A_TABLE.match(text) else "image_caption"
    return NAMES[region.label]


def _with_tables(elements: list[_Element]) -> list[_Element]:
    result: list[_Element] = []
    for element in elements:
        before = result[-1] if result else None
        at = element.text.find("<table")
        is_caption = label_of(element.name) == CAPTION and at >= 0
        is_free = before is not None and label_of(before.name) == TABLE and not before.text.strip()
        if is_caption and before is not None and is_free:
            result[-1] = replace(before, text=element.text[at:])
            element = replace(element, text=element.text[:at])
        result.append(element)
    return result


def _region(element: _Element) -> Region:
    label = label_of(element.name)
    text = stripped(CENTRE.sub("", element.text))
    if label == FORMULA:
        text = bare_formula(text)
    heading = HEADING.match(text)
    if heading is not None and label == TEXT:
        label = SECTION_HEADER
    level = len(heading[1]) if heading is not None and label in (TITLE, SECTION_HEADER) else 0
    return Region(element.box, label, drafts=[text] if text else [], level=level)
