"""dots.ocr's results: one JSON list of `{bbox, category, text}` a page.

Known from dots.ocr's prompt, `format_transformer.py` and `layout_utils.py`: boxes are in pixels of
the picture, which is a PDF page at 200 dpi. Files are called `NAME.json`, and `NAME_page_0.json`
for page 1 of a PDF. Written from these, not from files of a real run.
"""

from __future__ import annotations

from typing import Any

from ..page import Page
from ..regions import PICTURE, SECTION_HEADER, TITLE, Region, box, label_of
from ..resolution import POINTS
from .base import to_page

PDF_DPI = 200.0


def is_mine(data: Any) -> bool:
    return (
        isinstance(data, list)
        and bool(data)
        and all(isinstance(cell, dict) and "bbox" in cell and "category" in cell for cell in data)
    )


def read(data: Any, page: Page) -> list[Region] | None:
    """Returns regions of a page; the list does not say of which."""
    scale = PDF_DPI / POINTS if page.is_pdf else 1.0
    size = (page.native[0] * scale, page.native[1] * scale)
    return to_page([_region(cell) for cell in data], page, size)


def _region(cell: dict[str, Any]) -> Region:
    label = label_of(str(cell["category"]))
    text = str(cell.get("text") or "").strip()
    level = 0
    if label in (TITLE, SECTION_HEADER):
        level = len(text) - len(text.lstrip("#"))
        text = text.lstrip("# ")
    drafts = [text] if text and label != PICTURE else []
    return Region(box(cell["bbox"]), label, 0, drafts, level)
