"""dots.ocr's format: a JSON list of `{bbox, category, text}`, repaired where it is invalid."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ..errors import SoonerError
from .regions import PICTURE, Region, Size, box, label_of, numbered, scaled

ESCAPE = re.compile(r'\\(u[0-9a-fA-F]{4}|["\\/bfnrt])?')
"""An escape that JSON knows, or a backslash that is none."""

COMMAND = re.compile(
    r"\\(?:\\|[bfrt](?=[a-zA-Z])|n(?=abla|eq|u\b|ot|i\b|earrow|warrow|leq|geq|mid))?"
)
"""A backslash that begins a command of LaTeX where none are escaped, such as that of `\\frac`."""

OPEN_END = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?$")
"""An escape that was cut off."""


def repaired(part: str, texts: Sequence[str] = ("text",)) -> dict[str, Any] | None:
    """Returns the object that `part` begins with, whatever follows, or `None` if nothing is left of
    it.

    An object that was cut off keeps its finished members, and of an unfinished text what there is.

    Args:
        part: begins with a brace.
        texts: members of which a part is better than nothing.
    """
    for text in (part, _escaped(part)):
        for candidate in _candidates(text, texts):
            try:
                value = json.loads(candidate, strict=False)
            except ValueError:
                continue
            if isinstance(value, dict) and value:
                return value
    return None


def _escaped(part: str) -> str:
    """Backslashes that JSON does not know made known, and LaTeX's commands with them."""

    def known(match: re.Match[str]) -> str:
        return match[0] if match[1] else "\\\\"

    def command(match: re.Match[str]) -> str:
        return match[0] if match[0] == "\\\\" else f"\\{match[0]}"

    is_latex = any(not match[1] for match in ESCAPE.finditer(part.rstrip("\\")))
    if not is_latex:
        return part
    commands = re.sub(COMMAND.pattern.removesuffix("?"), command, part)
    return ESCAPE.sub(known, commands)


def _candidates(part: str, texts: Sequence[str]) -> list[str]:
    """Returns ways to end the object, the least invasive one first."""
    end, comma, string = _scan(part)
    if end is not None:
        return [part[: end + 1]]
    candidates = []
    key = re.search(r'"([^"\\]*)"\s*:\s*$', part[:string]) if string is not None else None
    if key and key[1] in texts:
        candidates.append(OPEN_END.sub("", part) + '"}')
    if comma is not None:
        candidates.append(part[:comma] + "}")
    return candidates


def _scan(part: str) -> tuple[int | None, int | None, int | None]:
    """Returns where the object ends, where its last member did, and where an open string begins."""
    depth, comma, string, skip = 0, None, None, False
    for place, sign in enumerate(part):
        if skip:
            skip = False
        elif string is not None:
            skip = sign == "\\"
            string = None if sign == '"' else string
        elif sign == '"':
            string = place
        elif sign in "{[":
            depth += 1
        elif sign in "}]":
            depth -= 1
            if depth == 0:
                return place, comma, None
        elif sign == "," and depth == 1:
            comma = place
    return None, comma, string


START = re.compile(r'\{\s*"(?:bbox|category|text)"\s*:')
"""How an element begins; within a text its quotes would be escaped."""


@dataclass(frozen=True)
class LayoutParse:
    """The regions that a model's answer holds.

    Attributes:
        regions: in the answer's order, one draft each.
        raw: the answer as it was.
        repaired: whether it was no valid JSON, and something may be lost.
    """

    regions: list[Region] = field(default_factory=list)
    raw: str = ""
    repaired: bool = False


def cell_json(region: Region, text: str, size: Size, boxes: Size | None = None) -> str:
    """Returns one element, its box brought from pictures of `size` to such of size `boxes`."""
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
    pieces = (repaired(inner[a:b]) for a, b in pairwise([*starts, len(inner)]))
    cells = [cell for cell in pieces if cell is not None]
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
