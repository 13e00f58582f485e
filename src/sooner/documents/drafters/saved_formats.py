"""Results that other programs saved as JSON: how each is known, and how its regions are read.

Known from the programs' own documentation and sources, docling's from its own test files:

- PP-StructureV3 (PaddleX' `layout_parsing/result_v2.py`): one `NAME_res.json` a page with
  `page_index` from 0 (null for pictures) and `parsing_res_list` of `{block_label, block_content,
  block_bbox}`, newer versions also `block_order`, `width` and `height`; its service wraps the same.
- docling (`tests/data/groundtruth`): a `DoclingDocument`, whose `body.children` refer to items
  with `prov` of `page_no` from 1 and boxes in points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..page import Page
from ..regions import (
    FURNITURE,
    LIST_ITEM,
    PICTURE,
    SECTION_HEADER,
    TABLE,
    TITLE,
    PageDraft,
    Region,
    box,
    label_of,
)
from ..serialise import FENCE
from ..tables import Cell, Table, to_html
from .base import to_page

PADDLE_SCALE = 2.0
"""Pixels a point at which PaddleX draws PDFs."""


class Format(NamedTuple):
    """A form that saved results have: how to know it, and how to read a page's regions out of it.

    `read` gives `None` if the file is not about that page.
    """

    is_mine: Callable[[Any], bool]
    read: Callable[[Any, Page], list[Region] | None]


def _region(name: str, text: Any, place: Any = None, level: int = 0) -> Region:
    """Returns a region by another program's name for what it is; pictures have no text."""
    label, text = label_of(name), str(text or "").strip()
    drafts = [text] if text and label != PICTURE else []
    return Region(None if place is None else box(place), label, 0, drafts, level)


def _read_paddle(data: Any, page: Page) -> list[Region] | None:
    results = _paddle_results(data)
    for place, result in enumerate(results):
        index = result.get("page_index")
        if index is None and len(results) > 1:
            index = place
        if index is None or int(index) == page.number - 1:
            blocks = sorted(result["parsing_res_list"], key=_paddle_rank)
            scale = PADDLE_SCALE if page.is_pdf else 1.0
            width = float(result.get("width") or page.native[0] * scale)
            height = float(result.get("height") or page.native[1] * scale)
            return to_page(map(_paddle_region, blocks), page, (width, height))
    return None


def _paddle_results(data: Any) -> list[dict[str, Any]]:
    """Returns objects with `parsing_res_list`, out of whatever they are wrapped in."""
    if isinstance(data, list):
        return [result for entry in data for result in _paddle_results(entry)]
    if not isinstance(data, dict):
        return []
    if isinstance(data.get("parsing_res_list"), list):
        return [data]
    wrappers = ("res", "result", "layoutParsingResults", "prunedResult")
    return next((_paddle_results(data[key]) for key in wrappers if key in data), [])


def _paddle_rank(block: dict[str, Any]) -> tuple[int, int]:
    """Blocks without an order are furniture and pictures, as listed."""
    if block.get("block_order") is not None:
        return 1, int(block["block_order"])
    return (0 if label_of(str(block.get("block_label", ""))) == FURNITURE[0] else 2), 0


def _paddle_region(block: dict[str, Any]) -> Region:
    name = str(block.get("block_label", "text"))
    level = {TITLE: 1, SECTION_HEADER: 2}.get(label_of(name), 0)
    return _region(name, block.get("block_content"), block.get("block_bbox"), level)


def _is_docling(data: Any) -> bool:
    return isinstance(data, dict) and (
        data.get("schema_name") == "DoclingDocument"
        or (isinstance(data.get("body"), dict) and "texts" in data)
    )


def _read_docling(data: Any, page: Page) -> list[Region] | None:
    pages = data.get("pages") or {}
    size = (pages.get(str(page.number)) or {}).get("size") or {}
    width, height = (
        float(size.get(side) or native)
        for side, native in zip(("width", "height"), page.native, strict=True)
    )
    seen: set[str] = set()
    roots = (data.get("furniture") or {}, data.get("body") or {})
    items = [item for root in roots for item in _docling_items(data, root, seen)]
    regions = [region for item in items for region in _docling_regions(item, page.number, height)]
    if not regions and pages and str(page.number) not in pages:
        return None
    return to_page(regions, page, (width, height))


def _docling_items(
    data: dict[str, Any], node: dict[str, Any], seen: set[str]
) -> Iterator[dict[str, Any]]:
    """Yields items below a node in reading order, each once; captions of a table before it."""
    for child in node.get("children") or []:
        reference = str(child.get("$ref") or child.get("cref") or "")
        if not reference or reference in seen:
            continue
        seen.add(reference)
        item: Any = data
        for part in reference.removeprefix("#/").split("/"):
            item = item[int(part)] if isinstance(item, list) else item[part]
        inner = list(_docling_items(data, item, seen))
        is_table = label_of(str(item.get("label"))) == TABLE
        above = [part for part in inner if is_table and part.get("label") == "caption"]
        yield from above
        if "prov" in item:
            yield item
        yield from (part for part in inner if part not in above)


def _docling_regions(item: dict[str, Any], number: int, height: float) -> Iterator[Region]:
    """Yields an item's part on a page; one that goes over several has a share on each."""
    name = str(item.get("label", "text"))
    label = label_of(name)
    level = int(item.get("level") or 0) + (1 if label == SECTION_HEADER else 0)
    for place in item.get("prov") or []:
        if int(place["page_no"]) != number:
            continue
        left, top, right, bottom = (float(place["bbox"][edge]) for edge in "ltrb")
        if place["bbox"].get("coord_origin", "BOTTOMLEFT") == "BOTTOMLEFT":
            top, bottom = height - top, height - bottom
        start, end = place.get("charspan") or (0, 0)
        share = slice(start, end) if len(item["prov"]) > 1 and end > start else slice(None)
        text = _docling_text(item, name, label, share)
        yield _region(name, text, (left, top, right, bottom), 1 if label == TITLE else level)


def _docling_text(item: dict[str, Any], name: str, label: str, share: slice) -> str:
    if label == TABLE:
        table = _docling_table(item.get("data") or {})
        return to_html(table) if table else ""
    text = str(item.get("text") or item.get("orig") or "")[share].strip()
    if label == LIST_ITEM and text:
        return f"{str(item.get('marker') or '-').strip() if item.get('enumerated') else '-'} {text}"
    return f"{FENCE}\n{text}\n{FENCE}" if name == "code" and text else text


def _docling_table(data: dict[str, Any]) -> Table:
    """Returns rows of the cells that begin in them."""
    rows: dict[int, list[tuple[int, Cell]]] = {}
    for cell in data.get("table_cells") or []:
        spans = int(cell.get("row_span", 1)), int(cell.get("col_span", 1))
        begun = rows.setdefault(int(cell["start_row_offset_idx"]), [])
        begun.append((int(cell["start_col_offset_idx"]), Cell(str(cell.get("text", "")), *spans)))
    count = int(data.get("num_rows") or max(rows, default=-1) + 1)
    return [
        [cell for _, cell in sorted(rows.get(row, []), key=lambda entry: entry[0])]
        for row in range(count)
    ]


def _read_draft(data: Any, page: Page) -> list[Region]:
    draft = PageDraft.from_json(data)
    return to_page(draft.regions, page, draft.size)


FORMATS = {
    "paddle": Format(lambda data: bool(_paddle_results(data)), _read_paddle),
    "docling": Format(_is_docling, _read_docling),
    "sooner": Format(
        lambda data: isinstance(data, dict) and isinstance(data.get("regions"), list), _read_draft
    ),
}
