"""Regions out of a `DoclingDocument`: of docling's JSON, and of answers in DocTags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .regions import Label, Region, box, label_of
from .serialise import fenced, mark_of
from .tables import Cell, Table, to_html

LESS = "\ufdd0"
"""Stands for `<` in texts and cells, of which docling-core would make a mark."""


def docling_regions(document: Any, number: int, height: float) -> list[Region]:
    """Returns regions of a page, in the unit of its boxes; captions of a table stand before it.

    Args:
        document: of docling-core.
        number: of the page, from 1.
        height: of the page, in the unit of its boxes.
    """
    from docling_core.types.doc import ContentLayer, TableItem

    items: dict[str, Any] = {}  # by reference
    layers = set(ContentLayer)
    for item, _ in document.iterate_items(included_content_layers=layers, traverse_pictures=True):
        captions = [part.resolve(document) for part in getattr(item, "captions", ())]
        for caption in captions:
            items.pop(caption.self_ref, None)
        for part in (*captions, item) if isinstance(item, TableItem) else (item, *captions):
            items.setdefault(part.self_ref, part)
    parts = (_parts(item, document, number, height) for item in items.values())
    return [region for regions in parts for region in regions]


def _parts(item: Any, document: Any, number: int, height: float) -> Iterator[Region]:
    """Yields an item's part on a page; one that goes over several has a share on each, and one
    without a place is on the only page."""
    label = label_of(item.label.value)
    level = {Label.TITLE: 1, Label.SECTION_HEADER: getattr(item, "level", 0) + 1}.get(label, 0)
    for place in item.prov or [None] * (len(document.pages) == 1):
        if place is not None and place.page_no != number:
            continue
        bbox, share = None, slice(None)
        if place is not None:
            bbox = box(place.bbox.to_top_left_origin(height).as_tuple())
            start, end = place.charspan
            share = slice(start, end) if len(item.prov) > 1 and end > start else share
        text = _text(item, share)
        yield Region(bbox, label, 0, [text] if text else [], level)


def _text(item: Any, share: slice) -> str:
    """Returns an item's text; of a picture only the table of a chart."""
    chart = getattr(getattr(item, "meta", None), "tabular_chart", None)
    data = getattr(item, "data", None) if chart is None else chart.chart_data
    if data is not None:
        rows: Table = [[] for _ in range(data.num_rows)]
        for cell in sorted(data.table_cells, key=lambda cell: cell.start_col_offset_idx):
            words = cell.text.replace(LESS, "<")
            rows[cell.start_row_offset_idx].append(Cell(words, cell.row_span, cell.col_span))
        return to_html(rows)
    if hasattr(item, "graph"):  # of a form
        return "\n".join(cell.text for cell in item.graph.cells)
    whole: str = getattr(item, "text", "") or getattr(item, "orig", "")
    text = whole[share].strip().replace(LESS, "<")
    if item.label.value == "list_item" and text and not mark_of(text):
        return f"{item.marker.strip() if item.enumerated else '-'} {text}"
    if item.label.value != "code" or not text:
        return text
    language = item.code_language.value.lower()
    return fenced(text, "" if language == "unknown" else language)
