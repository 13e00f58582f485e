"""PP-StructureV3's results (PaddleOCR, PaddleX).

Known from PaddleX' `layout_parsing/result_v2.py`: `save_to_json` writes one `NAME_res.json` a page
(`NAME_0_res.json` for page 1 of a PDF) with `page_index` (from 0; null for pictures) and
`parsing_res_list` of `{block_label, block_content, block_bbox}`, newer versions also `block_order`,
`width` and `height`. Tables are HTML, formulas LaTeX, boxes in pixels; PaddleX draws PDFs at 144
dpi (`PDFReaderBackend(zoom=2.0)`). The service puts the same into
`result.layoutParsingResults[n].prunedResult`. Seen in these sources and in other projects' tests,
not in files of a real run.
"""

from __future__ import annotations

from typing import Any

from ..page import Page
from ..regions import FURNITURE, PICTURE, SECTION_HEADER, TITLE, Region, box, label_of
from .base import to_page

PDF_SCALE = 2.0
"""Pixels a point at which PaddleX draws PDFs."""


def is_mine(data: Any) -> bool:
    return bool(_pages(data))


def read(data: Any, page: Page) -> list[Region] | None:
    """Returns regions of a page, or `None` if the data are about others."""
    pages = _pages(data)
    for place, result in enumerate(pages):
        index = result.get("page_index")
        if index is None and len(pages) > 1:
            index = place
        if index is None or int(index) == page.number - 1:
            return to_page(_regions(result), page, _size(result, page))
    return None


def _pages(data: Any) -> list[dict[str, Any]]:
    """Returns objects with `parsing_res_list`, out of whatever they are wrapped in."""
    if isinstance(data, list):
        return [page for entry in data for page in _pages(entry)]
    if not isinstance(data, dict):
        return []
    if isinstance(data.get("parsing_res_list"), list):
        return [data]
    for key in ("res", "result", "layoutParsingResults", "prunedResult"):
        if key in data:
            return _pages(data[key])
    return []


def _size(result: dict[str, Any], page: Page) -> tuple[float, float]:
    if result.get("width") and result.get("height"):
        return float(result["width"]), float(result["height"])
    scale = PDF_SCALE if page.is_pdf else 1.0
    return page.native[0] * scale, page.native[1] * scale


def _regions(result: dict[str, Any]) -> list[Region]:
    return [_region(block) for block in sorted(result["parsing_res_list"], key=_rank)]


def _rank(block: dict[str, Any]) -> tuple[int, int]:
    """Returns blocks by their order; those without one are furniture and pictures, as listed."""
    order = block.get("block_order")
    if order is not None:
        return 1, int(order)
    label = label_of(str(block.get("block_label", "")))
    return (0 if label == FURNITURE[0] else 2), 0


def _region(block: dict[str, Any]) -> Region:
    name = str(block.get("block_label", "text"))
    label = label_of(name)
    text = str(block.get("block_content") or "").strip()
    drafts = [text] if text and label != PICTURE else []
    level = {TITLE: 1, SECTION_HEADER: 2}.get(label, 0)
    place = block.get("block_bbox")
    return Region(None if place is None else box(place), label, 0, drafts, level)
