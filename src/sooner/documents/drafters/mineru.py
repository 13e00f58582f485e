"""MinerU's results: `NAME_content_list.json`.

Known from MinerU's reference page "Output files" (`docs/en/reference/output_files.md`), for both
back ends. The content list is flat and in reading order: `type`, `page_idx` from 0, `bbox` in
thousandths of the page (older versions have none), and by type `text` (with `text_level`),
`table_body` (HTML) with captions and footnotes, `list_items`, `code_body`. Written from that page,
not from files of a real run.
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
    PICTURE,
    SECTION_HEADER,
    TEXT,
    TITLE,
    Box,
    Region,
    box,
    label_of,
)

THOUSANDTHS = (1000.0, 1000.0)


def is_content_list(data: Any) -> bool:
    """Returns whether JSON is a content list."""
    return (
        isinstance(data, list)
        and bool(data)
        and all(isinstance(item, dict) and "type" in item and "page_idx" in item for item in data)
    )


def read_content_list(data: Any, page: Page) -> list[Region] | None:
    """Returns regions of a page in thousandths of it; captions and footnotes have no box."""
    items = [item for item in data if int(item["page_idx"]) == page.number - 1]
    return [region for item in items for region in _listed(item)] if items else None


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
