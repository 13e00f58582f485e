"""MinerU's results: `NAME_content_list.json` and `NAME_middle.json`.

Known from MinerU's reference page "Output files" (`docs/en/reference/output_files.md`), for both
back ends. The content list is flat and in reading order: `type`, `page_idx` from 0, `bbox` in
thousandths of the page (older versions have none), and by type `text` (with `text_level`),
`table_body` (HTML) with captions and footnotes, `list_items`, `code_body`. The middle file has
`pdf_info` of pages with `page_size`, `para_blocks` and `discarded_blocks`, which hold lines of
spans or further blocks. Written from that page, not from files of a real run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..lines import is_item
from ..page import Page
from ..regions import (
    CAPTION,
    FOOTNOTE,
    LIST_ITEM,
    PAGE_FOOTER,
    PICTURE,
    SECTION_HEADER,
    TEXT,
    TITLE,
    Box,
    Region,
    box,
    label_of,
)
from .base import to_page

THOUSANDTHS = (1000.0, 1000.0)


def is_content_list(data: Any) -> bool:
    return (
        isinstance(data, list)
        and bool(data)
        and all(isinstance(item, dict) and "type" in item and "page_idx" in item for item in data)
    )


def read_content_list(data: Any, page: Page) -> list[Region] | None:
    """Returns regions of a page; captions and footnotes have no box of their own."""
    items = [item for item in data if int(item["page_idx"]) == page.number - 1]
    regions = [region for item in items for region in _listed(item)]
    return to_page(regions, page, THOUSANDTHS) if items else None


def _listed(item: dict[str, Any]) -> Iterator[Region]:
    kind = str(item["type"])
    place = box(item["bbox"]) if item.get("bbox") else None
    before, after = _notes(item, "caption"), _notes(item, "footnote")
    if kind in ("image", "chart"):
        yield Region(place, PICTURE)
        yield from _texts(CAPTION, before)
    elif kind == "list":
        items = "\n".join(_marked(str(text)) for text in item.get("list_items", []))
        yield Region(place, LIST_ITEM, 0, [items] if items else [])
    else:
        yield from _texts(CAPTION, before)
        yield _body(item, kind, place)
    yield from _texts(FOOTNOTE, after)


def _body(item: dict[str, Any], kind: str, place: Box | None) -> Region:
    text = str(item.get("table_body") or item.get("text") or "").strip()
    if "code_body" in item:
        code = str(item["code_body"])
        return Region(place, TEXT, 0, [code if "```" in code else f"```\n{code.strip()}\n```"])
    level = int(item.get("text_level") or 0)
    label = label_of(kind)
    if kind == "text" and level:
        label = TITLE if level == 1 else SECTION_HEADER
    return Region(place, label, 0, [text] if text else [], level)


def _notes(item: dict[str, Any], kind: str) -> list[str]:
    """Returns captions or footnotes of an item, whatever they belong to."""
    notes: list[str] = []
    for key, value in item.items():
        if key.endswith(f"_{kind}"):
            notes += [value] if isinstance(value, str) else [str(text) for text in value or []]
    return notes


def _texts(label: str, texts: Sequence[str]) -> Iterator[Region]:
    for text in texts:
        if text.strip():
            yield Region(None, label, 0, [text.strip()])


def _marked(text: str) -> str:
    return text.strip() if is_item(text) else f"- {text.strip()}"


def is_middle(data: Any) -> bool:
    return isinstance(data, dict) and isinstance(data.get("pdf_info"), list)


def read_middle(data: Any, page: Page) -> list[Region] | None:
    """Regions of a page, what MinerU discards at its edges included."""
    for info in data["pdf_info"]:
        if int(info.get("page_idx", 0)) == page.number - 1:
            edges = _all(info.get("discarded_blocks"))
            body = _all(info.get("para_blocks"))
            below = [region for region in edges if region.label in (PAGE_FOOTER, FOOTNOTE)]
            above = [region for region in edges if region not in below]
            width, height = info.get("page_size") or page.native
            return to_page([*above, *body, *below], page, (float(width), float(height)))
    return None


def _all(blocks: list[dict[str, Any]] | None) -> list[Region]:
    return [region for block in blocks or [] for region in _of(block)]


def _of(block: dict[str, Any]) -> Iterator[Region]:
    kind = str(block.get("type", "text"))
    inner = block.get("blocks")
    if inner and kind == "list":
        texts = [_marked(text) for part in inner if (text := _text(part))]
        yield Region(box(block["bbox"]), LIST_ITEM, 0, ["\n".join(texts)] if texts else [])
    elif inner:
        for part in inner:
            yield from _of(part)
    else:
        label = label_of(kind)
        text = _text(block)
        level = int(block.get("level") or (1 if label == TITLE else 0))
        if label == TITLE and level > 1:
            label = SECTION_HEADER
        place = box(block["bbox"]) if block.get("bbox") else None
        yield Region(place, label, 0, [text] if text and label != PICTURE else [], level)


def _text(block: dict[str, Any]) -> str:
    lines = ("".join(map(_span, line.get("spans") or [])) for line in block.get("lines") or [])
    return "\n".join(line.strip() for line in lines if line.strip())


def _span(span: dict[str, Any]) -> str:
    content = str(span.get("html") or span.get("content") or "")
    kind = span.get("type")
    if kind == "inline_equation" and content:
        return f"${content.strip()}$ "
    return content if content.endswith(" ") or kind != "text" else f"{content} "
