"""dots.ocr's form: a JSON list of `{bbox, category, text}`, repaired where it is invalid."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from itertools import pairwise
from typing import Any

from ...errors import SoonerError
from ..regions import PICTURE, Region, Size, box, label_of, numbered, scaled
from ..serialise import DOTS, Style
from .base import FormAnswer, PageForm

START = re.compile(r'\{\s*"(?:bbox|category|text)"\s*:')
"""How an element begins; within a text its quotes would be escaped."""

MEMBER = re.compile(r',\s*"')
"""How another member of an element begins."""

OPEN_TEXT = re.compile(r'"text"\s*:\s*"(?:[^"\\]|\\.)*\\?$', re.S)
"""A text that was cut off."""

OPEN_END = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?$")
"""An escape that was cut off."""

ESCAPE = re.compile(r'\\(u[0-9a-fA-F]{4}|["\\/bfnrt])?')
"""An escape that JSON knows, or a backslash that is none."""

COMMAND = re.compile(
    r"\\(?:\\|[bfrt](?=[a-zA-Z])|n(?=abla|eq|u\b|ot|i\b|earrow|warrow|leq|geq|mid))"
)
"""A backslash that begins a command of LaTeX where none are escaped, such as that of `\\frac`."""

DECODER = json.JSONDecoder(strict=False)


class LayoutJson(PageForm):
    """The form that writes one list of elements; boxes are pixels of the picture as the model
    sees it."""

    style: Style = DOTS
    has_boxes = True

    def element(self, region: Region, text: str, size: Size, seen: Size | None = None) -> str:
        cell: dict[str, Any] = {}
        if region.bbox is not None:
            across, down = 1.0, 1.0
            if seen and 0 not in size:
                across, down = seen[0] / size[0], seen[1] / size[1]
            x0, y0, x1, y1 = scaled(region.bbox, across, down)
            cell["bbox"] = [math.floor(x0), math.floor(y0), math.ceil(x1), math.ceil(y1)]
        cell["category"] = region.label
        if text or region.label != PICTURE:
            cell["text"] = text
        return json.dumps(cell, ensure_ascii=False)

    def start(self, first: Region) -> str:
        return "["

    def between(self, region: Region, following: Region) -> str:
        return ", "

    def end(self, last: Region) -> str:
        return "]"

    def read(self, text: str) -> FormAnswer:
        """Returns the elements of an answer.

        One that was cut off, wrapped in a code block, or has broken elements loses only those.
        """
        inner = re.sub(r"^\s*```(?:json)?\s*|\s*```\s*$", "", text)
        try:
            cells, is_repaired = _elements(json.loads(inner)), False
        except ValueError:
            starts = [match.start() for match in START.finditer(inner)]
            parts = (_repaired(inner[a:b]) for a, b in pairwise([*starts, len(inner)]))
            cells, is_repaired = [cell for cell in parts if cell is not None], True
        regions = numbered([_region(cell) for cell in cells])
        drafts = (region.drafts[0] if region.drafts else "" for region in regions)
        written = [json.dumps(draft, ensure_ascii=False)[1:-1] for draft in drafts]
        return FormAnswer(regions, written, is_repaired)


def _elements(data: Any) -> list[dict[str, Any]]:
    """Returns the elements of an answer that is valid JSON.

    Raises:
        ValueError: it is no list of elements.
    """
    if isinstance(data, dict):
        lists = [value for value in data.values() if isinstance(value, list)]
        data = [data] if "category" in data or "bbox" in data else lists[0] if lists else []
    if not isinstance(data, list) or not all(isinstance(cell, dict) for cell in data):
        raise ValueError("the answer is no list of elements")
    return data


def _region(cell: dict[str, Any]) -> Region:
    try:
        place = box(cell["bbox"])
    except (KeyError, SoonerError):
        place = None
    text = cell.get("text")
    drafts = [text] if isinstance(text, str) and text.strip() else []
    return Region(place, label_of(str(cell.get("category", "Text"))), drafts=drafts)


def _repaired(part: str) -> dict[str, Any] | None:
    """Returns the element that `part` begins with, whatever follows, or `None` if nothing is left.

    One that was cut off keeps its finished members, and of an unfinished text what there is.
    """
    texts = list(dict.fromkeys([part, _escaped(part)]))
    closed = [OPEN_END.sub("", text) + '"}' for text in texts if OPEN_TEXT.search(text)]
    members = (reversed([match.start() for match in MEMBER.finditer(text)]) for text in texts)
    cut = [text[:at] + "}" for text, ends in zip(texts, members, strict=True) for at in ends]
    for candidate in (*texts, *closed, *cut):
        with suppress(ValueError):
            element: dict[str, Any] = DECODER.raw_decode(candidate)[0]
            return element or None
    return None


def _escaped(part: str) -> str:
    """Returns a part with backslashes escaped that JSON does not know, and LaTeX's commands."""
    if all(match[1] for match in ESCAPE.finditer(part.rstrip("\\"))):
        return part
    commands = COMMAND.sub(lambda match: match[0] if match[0] == r"\\" else f"\\{match[0]}", part)
    return ESCAPE.sub(lambda match: match[0] if match[1] else r"\\", commands)
