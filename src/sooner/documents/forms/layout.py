"""dots.ocr's form: a JSON list of `{bbox, category, text}`, repaired where it is invalid."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from itertools import pairwise
from typing import Any

from ...errors import SoonerError
from ..regions import PICTURE, Region, Size, box, label_of, scaled
from ..serialise import DOTS, Style
from .base import FormAnswer, PageForm

START = re.compile(r'\{\s*"(?:bbox|category|text)"\s*:')
"""How an element begins; within a text its quotes would be escaped."""

END = re.compile(r'\}[\s,\]]*(?:\{\s*(?:"\w*"?\s*)?)?\Z')
"""How an element ends, and what may be there of the next one."""


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
            cells, is_repaired = json.loads(inner), False
        except ValueError:
            from json_repair import loads

            starts = [match.start() for match in START.finditer(inner)]
            parts = (
                END.sub("}", inner[a:b]).rstrip("\\") for a, b in pairwise([*starts, len(inner)])
            )
            cells, is_repaired = [loads(part) for part in parts], True
        regions = [_region(cell) for cell in _elements(cells)]
        drafts = (region.drafts[0] if region.drafts else "" for region in regions)
        written = [json.dumps(draft, ensure_ascii=False)[1:-1] for draft in drafts]
        is_broken = is_repaired or not regions
        return FormAnswer.of(zip(regions, written, strict=True), is_broken)


def _elements(data: Any) -> list[dict[str, Any]]:
    """Returns the elements of an answer; none if it is no list of them."""
    if isinstance(data, dict):
        lists = [value for value in data.values() if isinstance(value, list)]
        data = [data] if "category" in data or "bbox" in data else lists[0] if lists else []
    return [cell for cell in data if isinstance(cell, dict)] if isinstance(data, list) else []


def _region(cell: dict[str, Any]) -> Region:
    """Returns an element; the box of one that ends behind it may be cut off."""
    place = None
    if "category" in cell:
        with suppress(KeyError, SoonerError):
            place = box(cell["bbox"])
    text = cell.get("text")
    drafts = [text] if isinstance(text, str) and text.strip() else []
    return Region(place, label_of(str(cell.get("category", "Text"))), drafts=drafts)
