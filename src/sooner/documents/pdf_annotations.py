"""Text upon a PDF's page that is no part of its content: values of form fields, check boxes, notes
in free text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .page import Line
from .regions import Box, around, shared_height

LINE_HEIGHT, MAX_SIZE = 1.2, 12.0
"""Height of a line in font sizes, and the largest font size that is supposed of a field, in points:
many fields leave it to the viewer."""

LABEL, SIDE_GAP = 8.0, 3.0
"""Font sizes between a field and the label to its left, and a check box and that on either side."""

HIDDEN = 2 | 32
"""Flags of annotations (ISO 32000-1, table 165) that are not shown."""

PASSWORD, PUSH_BUTTON = 1 << 13, 1 << 16
"""Flags of fields (tables 226 and 228) whose values are not shown, and that have none."""

CHECKED, UNCHECKED = "[x]", "[ ]"


def with_annotations(
    lines: Sequence[Line],
    annotations: Iterable[Mapping[str, Any]],
    box_of: Callable[[Mapping[str, Any]], Box],
    unit: float,
) -> tuple[list[Line], list[Box]]:
    """Returns lines of a page, the texts of its annotations where they are, and the boxes of these.

    A field's value stands behind its label, a check box in front of its own.

    Args:
        lines: of the page's content.
        annotations: of pdfplumber.
        box_of: returns where one is on the picture.
        unit: pixels a point.
    """
    whole, boxes = list(lines), []
    for annotation in annotations:
        box, text = box_of(annotation), _text(annotation["data"])
        boxes.append(box)
        if not text.strip():
            continue
        size = min(MAX_SIZE * unit, (box[3] - box[1]) / LINE_HEIGHT)
        middle, half = (box[1] + box[3]) / 2, LINE_HEIGHT * size / 2
        line = Line(
            " ".join(text.split()), (box[0], middle - half, box[2], middle + half), size, 1.0
        )
        label = _label(whole, line, text in (CHECKED, UNCHECKED))
        if label is None:
            whole.append(line)
        else:
            pair = sorted((line, whole[label]), key=lambda part: part.bbox[0])
            text = " ".join(part.text for part in pair)
            whole[label] = replace(whole[label], text=text, bbox=around(part.bbox for part in pair))
    return whole, boxes


def _label(lines: Sequence[Line], line: Line, is_mark: bool) -> int | None:
    """Returns which line is a field's label, to its left; that of a mark may be on its right."""
    reach = (SIDE_GAP if is_mark else LABEL) * line.size
    labels = []
    for place, other in enumerate(lines):
        right, left = other.bbox[0] - line.bbox[2], line.bbox[0] - other.bbox[2]
        if shared_height(line.bbox, other.bbox) > 0.5:
            labels += [(0, right, place)] * is_mark + [(1, left, place)]
    near = (entry for entry in labels if -line.size < entry[1] < reach)
    return min(near, default=(0, 0.0, None))[2]


def _text(data: Mapping[str, Any]) -> str:
    """Returns the text of an annotation; empty for most."""
    if int(data.get("F") or 0) & HIDDEN:
        return ""
    kind, field = _string(data.get("Subtype")), _string(_inherited(data, "FT"))
    flags = int(_inherited(data, "Ff") or 0)
    if kind == "FreeText":
        return _string(data.get("Contents"))
    if kind != "Widget" or (field == "Btn" and flags & PUSH_BUTTON):
        return ""
    if field == "Btn":
        return UNCHECKED if _string(data.get("AS")) in ("", "Off") else CHECKED
    return "" if field == "Tx" and flags & PASSWORD else _string(_inherited(data, "V"))


def _inherited(data: Mapping[str, Any], key: str) -> Any:
    """Returns an entry of a field, which may be that of the field that it is a part of."""
    from pdfminer.pdftypes import resolve1

    for _ in range(8):
        if data.get(key) is not None or not data.get("Parent"):
            break
        data = resolve1(data["Parent"])
    return resolve1(data.get(key))


def _string(value: Any) -> str:
    """Returns a name or a text; empty for anything else, such as several values."""
    from pdfminer.utils import decode_text

    if isinstance(value, bytes):
        return decode_text(value).rstrip("\0")
    name = getattr(value, "name", "")
    return name if isinstance(name, str) else ""
