"""Text upon a PDF's page that is no part of its content: values of form fields, check boxes, notes
in free text."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
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

PASSWORD = 1 << 13
"""The flag of a field (table 228) whose value is not shown."""

CHECKED, UNCHECKED = "[x]", "[ ]"


def with_annotations(
    lines: Sequence[Line], raw: Any, page: Any, box: Callable[..., Box], unit: float
) -> tuple[list[Line], list[Box]]:
    """Returns lines of a page, the texts of its annotations where they are, and the boxes of these.

    A field's value stands behind its label, a check box in front of its own.

    Args:
        lines: of the page's content.
        raw: PDFium's functions.
        page: an open page, of a document whose forms were made ready, if it has any.
        box: brings left, bottom, right and top of the page to pixels.
        unit: pixels a point.
    """
    whole, boxes = list(lines), []
    for text, place, is_mark in _annotations(raw, page, box):
        boxes.append(place)
        if not text.strip():
            continue
        size = min(MAX_SIZE * unit, (place[3] - place[1]) / LINE_HEIGHT)
        middle, half = (place[1] + place[3]) / 2, LINE_HEIGHT * size / 2
        bbox = place[0], middle - half, place[2], middle + half
        line = Line(" ".join(text.split()), bbox, size, confidence=1.0)
        label = _label(whole, line, is_mark)
        if label is None:
            whole.append(line)
        else:
            pair = sorted((line, whole[label]), key=lambda part: part.bbox[0])
            text = " ".join(part.text for part in pair)
            bbox = around(part.bbox for part in pair)
            whole[label] = replace(whole[label], text=text, bbox=bbox)
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


def _annotations(raw: Any, page: Any, box: Callable[..., Box]) -> Iterator[tuple[str, Box, bool]]:
    """Text, place and whether it is a check mark, of each annotation; most have no text."""
    forms = page.formenv
    for number in range(raw.FPDFPage_GetAnnotCount(page)):
        annotation = raw.FPDFPage_GetAnnot(page, number)
        if not annotation:
            continue
        try:
            text, is_mark = _text(raw, forms, annotation)
            rect = raw.FS_RECTF()
            if raw.FPDFAnnot_GetRect(annotation, rect):
                yield text, box(rect.left, rect.bottom, rect.right, rect.top), is_mark
        finally:
            raw.FPDFPage_CloseAnnot(annotation)


def _text(raw: Any, forms: Any, annotation: Any) -> tuple[str, bool]:
    if raw.FPDFAnnot_GetFlags(annotation) & HIDDEN:
        return "", False
    kind = raw.FPDFAnnot_GetSubtype(annotation)
    if kind == raw.FPDF_ANNOT_FREETEXT:
        return _string(raw.FPDFAnnot_GetStringValue, annotation, b"Contents"), False
    if kind != raw.FPDF_ANNOT_WIDGET or forms is None:
        return "", False
    field = raw.FPDFAnnot_GetFormFieldType(forms, annotation)
    if field in (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON):
        return (CHECKED if raw.FPDFAnnot_IsChecked(forms, annotation) else UNCHECKED), True
    is_value = field in (
        raw.FPDF_FORMFIELD_TEXTFIELD, raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX,
    )  # fmt: skip
    if not is_value or raw.FPDFAnnot_GetFormFieldFlags(forms, annotation) & PASSWORD:
        return "", False
    return _string(raw.FPDFAnnot_GetFormFieldValue, forms, annotation), False


def _string(function: Callable[..., int], *arguments: Any) -> str:
    """Returns a string of PDFium's, which is asked for its length first."""
    length = function(*arguments, None, 0)
    if length < 2:
        return ""
    buffer = (ctypes.c_ushort * (length // 2))()
    function(*arguments, buffer, length)
    return bytes(buffer).decode("utf-16-le", "replace").rstrip("\0")
