"""docling's results: a `DoclingDocument` as JSON.

Known from docling's own test files (`tests/data/groundtruth/docling_v2/*.json`, version 1.6):
`body.children` are references such as `#/texts/3` in reading order, into `texts`, `tables`,
`pictures` and `groups`, which have children in turn. Items have `prov` with `page_no` from 1 and a
`bbox` `{l, t, r, b}` in points, from the bottom left or the top left as `coord_origin` says;
`pages["1"].size` has the page's. Page headers and footers are items of the layer `furniture`, in
older files children of `furniture`. Written from those files; inline styles are not kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..page import Page
from ..regions import (
    CAPTION,
    LIST_ITEM,
    PICTURE,
    SECTION_HEADER,
    TABLE,
    TEXT,
    TITLE,
    Box,
    Region,
    box,
    label_of,
)
from ..tables import Cell, Table, to_html
from .base import to_page


def is_mine(data: Any) -> bool:
    return isinstance(data, dict) and (
        data.get("schema_name") == "DoclingDocument"
        or (isinstance(data.get("body"), dict) and "texts" in data)
    )


def read(data: Any, page: Page) -> list[Region] | None:
    """Returns regions of a page, or `None` if the document has no such page."""
    size = _size(data, page)
    regions: list[Region] = []
    for root in (data.get("furniture"), data.get("body")):
        for item in _items(data, root or {}, set()):
            regions += _regions(item, page.number, size[1])
    known = data.get("pages") or {}
    if not regions and known and str(page.number) not in known:
        return None
    return to_page(regions, page, size)


def _size(data: dict[str, Any], page: Page) -> tuple[float, float]:
    known = (data.get("pages") or {}).get(str(page.number)) or {}
    size = known.get("size") or {}
    return (
        float(size.get("width") or page.native[0]),
        float(size.get("height") or page.native[1]),
    )


def _items(data: dict[str, Any], node: dict[str, Any], seen: set[str]) -> Iterator[dict[str, Any]]:
    """Yields items below a node in reading order, each once."""
    for child in node.get("children") or []:
        reference = str(child.get("$ref") or child.get("cref") or "")
        if not reference or reference in seen:
            continue
        seen.add(reference)
        item = _resolved(data, reference)
        # A caption stands above its table in the file's order, but is its child.
        inner = list(_items(data, item, seen))
        captions = [part for part in inner if label_of(str(part.get("label"))) == CAPTION]
        is_above = label_of(str(item.get("label"))) == TABLE
        yield from captions if is_above else []
        if "prov" in item:
            yield item
        yield from (part for part in inner if not (is_above and part in captions))


def _resolved(data: dict[str, Any], reference: str) -> dict[str, Any]:
    node: Any = data
    for part in reference.removeprefix("#/").split("/"):
        node = node[int(part)] if isinstance(node, list) else node[part]
    return dict(node)


def _regions(item: dict[str, Any], number: int, height: float) -> Iterator[Region]:
    """Yields the item's part on a page; one that goes over several has a box and a share on
    each.
    """
    for place in item.get("prov") or []:
        if int(place["page_no"]) != number:
            continue
        label = label_of(str(item.get("label", "text")))
        text = _text(item, label, place if len(item["prov"]) > 1 else None)
        level = int(item.get("level") or 0) + (1 if label == SECTION_HEADER else 0)
        if label == TITLE:
            level = 1
        drafts = [text] if text and label != PICTURE else []
        yield Region(_box(place["bbox"], height), label, 0, drafts, level)


def _box(place: dict[str, Any], height: float) -> Box:
    left, top, right, bottom = (float(place[edge]) for edge in "ltrb")
    if place.get("coord_origin", "BOTTOMLEFT") == "BOTTOMLEFT":
        top, bottom = height - top, height - bottom
    return box((left, top, right, bottom))


def _text(item: dict[str, Any], label: str, place: dict[str, Any] | None) -> str:
    if label == TABLE:
        table = _table(item.get("data") or {})
        return to_html(table) if table else ""
    text = str(item.get("text") or item.get("orig") or "")
    span = (place or {}).get("charspan") or (0, 0)
    if place is not None and span[1] > span[0]:
        text = text[span[0] : span[1]]
    text = text.strip()
    if label == LIST_ITEM and text:
        marker = str(item.get("marker") or "-").strip()
        return f"{marker if item.get('enumerated') else '-'} {text}"
    if label == TEXT and item.get("label") == "code" and text:
        return f"```\n{text}\n```"
    return text


def _table(data: dict[str, Any]) -> Table:
    """Returns rows of the cells that begin in them."""
    rows: dict[int, list[tuple[int, Cell]]] = {}
    for cell in data.get("table_cells") or []:
        row, column = int(cell["start_row_offset_idx"]), int(cell["start_col_offset_idx"])
        spans = int(cell.get("row_span", 1)), int(cell.get("col_span", 1))
        rows.setdefault(row, []).append((column, Cell(str(cell.get("text", "")), *spans)))
    count = int(data.get("num_rows") or max(rows, default=-1) + 1)
    return [
        [cell for _, cell in sorted(rows.get(row, []), key=lambda entry: entry[0])]
        for row in range(count)
    ]
