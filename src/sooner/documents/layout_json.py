"""dots.ocr's format: a JSON list of `{bbox, category, text}` in reading order.

Known from dots.ocr's own prompt (`dots_ocr/utils/prompts.py`: eleven categories, no text for
pictures, LaTeX for formulas, HTML for tables, Markdown for the rest) and from its
`format_transformer.py` and `layout_utils.py`, which read it. Boxes are `[x1, y1, x2, y2]` in pixels
of the picture that the model was given.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ..errors import SoonerError
from .boxes import box, scaled
from .labels import PICTURE, label_of
from .regions import Region, Size, numbered
from .repair import repaired

START = re.compile(r'\{\s*"(?:bbox|category|text)"\s*:')
"""How an element begins; within a text its quotes would be escaped."""


@dataclass(frozen=True)
class LayoutParse:
    """What a model's answer says.

    Attributes:
        regions: in the answer's order, one draft each.
        raw: the answer as it was.
        repaired: whether it was no valid JSON, and something may be lost.
    """

    regions: list[Region] = field(default_factory=list)
    raw: str = ""
    repaired: bool = False


def cell_json(region: Region, text: str, size: Size, boxes: Size | None = None) -> str:
    """One element, its box brought from pictures of `size` to such of size `boxes`."""
    cell: dict[str, Any] = {}
    if region.bbox is not None:
        across, down = (1.0, 1.0) if not boxes or 0 in size else (
            boxes[0] / size[0],
            boxes[1] / size[1],
        )  # fmt: skip
        x0, y0, x1, y1 = scaled(region.bbox, across, down)
        cell["bbox"] = [math.floor(x0), math.floor(y0), math.ceil(x1), math.ceil(y1)]
    cell["category"] = region.label
    if text or region.label != PICTURE:
        cell["text"] = text
    return json.dumps(cell, ensure_ascii=False)


def to_layout_json(
    regions: Sequence[tuple[Region, str]], size: Size, boxes: Size | None = None
) -> str:
    """A page: pairs of a region and its text, boxes as in `cell_json`."""
    return f"[{', '.join(cell_json(region, text, size, boxes) for region, text in regions)}]"


def read_layout_json(text: str) -> LayoutParse:
    """Read a model's answer, as far as it can be read.

    An answer that was cut off, wrapped in a code block, or has broken elements loses only those.
    That is outside any claim of exactness, hence `raw`.
    """
    inner = re.sub(r"^\s*```(?:json)?\s*|\s*```\s*$", "", text)
    try:
        data = json.loads(inner)
        return LayoutParse(_regions(data), text)
    except (ValueError, SoonerError):
        pass
    starts = [match.start() for match in START.finditer(inner)]
    found = (repaired(inner[a:b]) for a, b in pairwise([*starts, len(inner)]))
    cells = [cell for cell in found if cell is not None]
    return LayoutParse(numbered([_region(cell) for cell in cells]), text, repaired=True)


def _regions(data: Any) -> list[Region]:
    if isinstance(data, dict):
        lists = [value for value in data.values() if isinstance(value, list)]
        data = [data] if "category" in data or "bbox" in data else lists[0] if lists else []
    if not isinstance(data, list) or not all(isinstance(cell, dict) for cell in data):
        raise SoonerError("the answer is no list of elements")
    return numbered([_region(cell) for cell in data])


def _region(cell: dict[str, Any]) -> Region:
    try:
        place = box(cell["bbox"])
    except (KeyError, SoonerError):
        place = None
    text = cell.get("text")
    drafts = [text] if isinstance(text, str) and text.strip() else []
    return Region(place, label_of(str(cell.get("category", "Text"))), drafts=drafts)
