"""Texts and regions that other programs saved, as drafts."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...errors import SoonerError, error_line
from ..docling_items import docling_regions
from ..inputs import natural
from ..page import Page
from ..pdf import needed
from ..regions import HEADINGS, Label, PageDraft, Region, box, clipped, label_of, numbered, resized
from ..serialise import fenced, mark_of

PAGE_NUMBER = re.compile(r"[-_]0*(\d+)$")
"""How the name of a page's file ends."""


class SavedFiles:
    """Drafts pages by a file that is meant for every document, or by the files of a folder and of
    the folders in it that are called as the documents are.

    Args:
        path: a file, or a folder: of `paper.pdf`, `paper_3` and `paper-003` are about its page 3,
            `paper` about all of it.

    Raises:
        SoonerError: no such file or folder.
    """

    name: str
    suffixes: tuple[str, ...]

    def __init__(self, path: str | Path) -> None:
        self.root = Path(path)
        if not self.root.exists():
            raise SoonerError(f"'{path}' does not exist; give a file, or a folder of files")
        self.files: dict[str, Path] = {}
        for file in sorted(self.root.rglob("*"), key=natural):
            if file.suffix.lower() in self.suffixes and file.is_file():
                self.files.setdefault(PAGE_NUMBER.sub(r"_\1", file.stem), file)

    def __call__(self, page: Page) -> PageDraft:
        began = time.perf_counter()
        regions, reason = self._regions(page), ""
        if regions is None:
            reason = f"nothing saved of page {page.number} of '{page.source.name}' in '{self.root}'"
        seconds = time.perf_counter() - began
        return PageDraft(numbered(regions or []), seconds, self.name, page.size, reason)

    def _regions(self, page: Page) -> list[Region] | None:
        if self.root.is_file():
            return self.read(self.root, page, False)
        stem = page.source.stem
        names = {
            f"{stem}_{page.number}": True,
            f"{stem}_{page.number - 1}_res": True,  # as PaddleX calls it
            stem: False,
            f"{stem}_content_list": False,  # as MinerU does
        }
        for name, is_of_page in names.items():
            path = self.files.get(PAGE_NUMBER.sub(r"_\1", name))
            if path and (regions := self.read(path, page, is_of_page)) is not None:
                return regions
        return None

    def read(self, path: Path, page: Page, is_of_page: bool) -> list[Region] | None:
        """Returns what a file says about a page; `None` for nothing.

        Args:
            is_of_page: the file is of no other page.
        """
        raise NotImplementedError


class PlainText(SavedFiles):
    """Makes regions of a text without boxes: paragraphs, headings, lists, tables and formulas.

    In the text of a whole document form feeds divide pages, as `pdftotext` writes them. See
    `SavedFiles`.
    """

    name = "plain-text"
    suffixes = (".md", ".markdown", ".txt", ".mmd")

    def read(self, path: Path, page: Page, is_of_page: bool) -> list[Region] | None:
        text = path.read_text("utf-8-sig", "replace")
        pages = text.rstrip("\f\n").split("\f")
        if is_of_page or (len(pages) == 1 and page.of > 1):
            return list(blocks(text))
        return list(blocks(pages[page.number - 1])) if page.number <= len(pages) else None


HEADING = re.compile(r"(#{1,6})\s+(.*)")

IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")


def blocks(text: str) -> Iterator[Region]:
    """Yields regions of a Markdown text, one for each block between blank lines."""
    for block in re.split(r"\n[ \t]*\n", text.replace("\r\n", "\n").strip()):
        yield from _parts(block.strip("\n"))


def _parts(block: str) -> Iterator[Region]:
    """A heading may have its text right below it."""
    while match := HEADING.match(block):
        block = block.partition("\n")[2]
        level = len(match[1])
        title = match[2].strip().rstrip("#").strip()
        yield Region(None, Label.TITLE if level == 1 else Label.SECTION_HEADER, 0, [title], level)
    text = IMAGE.sub("", block).strip()
    if text:
        yield Region(None, _label(text), 0, [text])
    elif block.strip():
        yield Region(None, Label.PICTURE)


def _label(text: str) -> str:
    lines = text.splitlines()
    if "<table" in text.lower() or (len(lines) > 1 and all("|" in line for line in lines)):
        return Label.TABLE
    if text.startswith(("$$", "\\[", "\\begin{")):
        return Label.FORMULA
    return Label.LIST_ITEM if mark_of(text) else Label.TEXT


class SavedJson(SavedFiles):
    """Reads regions from files of docling, by docling-core, of PP-StructureV3, or of MinerU (its
    content list); see `SavedFiles`.

    Raises:
        SoonerError: no such path; when called, a file that is no JSON or of no known form.
    """

    name = "saved"
    suffixes = (".json",)

    def read(self, path: Path, page: Page, is_of_page: bool) -> list[Region] | None:
        try:
            content, frame = _opened(path, path.stat().st_mtime_ns), page.native
            if isinstance(content, dict):
                regions, frame = _paddle_regions(content, page)
            elif isinstance(content, list):
                items = [item for item in content if int(item["page_idx"]) == page.number - 1]
                regions = [part for item in items for part in _mineru_parts(item)]
                frame = MINERU_SIZE
            else:
                known = content.pages.get(page.number)
                if known is not None:
                    frame = known.size.width, known.size.height
                regions = docling_regions(content, page.number, frame[1])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            reason = error_line(error)
            raise SoonerError(f"'{path}' is not as its format should be ({reason})") from None
        if not regions and not is_of_page:
            return None
        return [
            replace(region, bbox=region.bbox and clipped(region.bbox, *page.size))
            for region in resized(regions, frame, page.size)
        ]


@lru_cache(maxsize=1)
def _opened(path: Path, changed: int) -> Any:
    """Returns a `DoclingDocument`, a page of PP-StructureV3 (a dictionary) or a content list of
    MinerU; the last one is kept for its next page."""
    data = json.loads(path.read_text("utf-8-sig", "replace"))
    if isinstance(data, dict) and isinstance(data.get("parsing_res_list"), list):
        return data
    if isinstance(data, list) and data and all("type" in item for item in data):
        return data
    if not isinstance(data, dict) or "body" not in data:
        raise SoonerError(f"'{path}' has none of the known formats: paddle, mineru, docling")
    document = needed("docling_core.types.doc", "docling's JSON", "docling").DoclingDocument
    return document.model_validate(data)


PADDLE_SCALE, MINERU_SIZE = 2.0, (1000.0, 1000.0)
"""Pixels a point at which PaddleX draws PDFs, and the size of a page in MinerU's content lists."""


def _paddle_regions(data: Any, page: Page) -> tuple[list[Region], tuple[float, float]]:
    """Returns regions of a page, and its width and height in the unit of their boxes; no regions
    if the file is about another page."""
    scale = PADDLE_SCALE if page.source.suffix.lower() == ".pdf" else 1.0
    width, height = (side * scale for side in page.native)
    regions = list[Region]()
    if data.get("page_index") in (None, page.number - 1):
        for block in data["parsing_res_list"]:
            label, text = label_of(str(block["block_label"])), block.get("block_content")
            regions.append(_region(label, text, block.get("block_bbox"), HEADINGS.get(label, 0)))
    return regions, (data.get("width") or width, data.get("height") or height)


def _mineru_parts(item: dict[str, Any]) -> Iterator[Region]:
    """Yields an item between its captions and its footnotes, which have no box; the captions of a
    picture follow it."""
    kind, text, level = str(item["type"]), item.get("text"), int(item.get("text_level") or 0)
    label = label_of(kind)
    if kind == "text" and level:
        label = Label.TITLE if level == 1 else Label.SECTION_HEADER
    if "list_items" in item:
        label, entries = Label.LIST_ITEM, [str(entry).strip() for entry in item["list_items"]]
        text = "\n".join(entry if mark_of(entry) else f"- {entry}" for entry in entries)
    elif "code_body" in item:
        label, text = Label.TEXT, fenced(str(item["code_body"]))
    captions, notes = (
        [_region(kind, note) for note in item.get(f"{item['type']}_{name}") or []]
        for name, kind in (("caption", Label.CAPTION), ("footnote", Label.FOOTNOTE))
    )
    body = [_region(label, item.get("table_body") or text, item.get("bbox"), level)]
    yield from [*body, *captions] if label == Label.PICTURE else [*captions, *body]
    yield from notes


def _region(label: Label, text: Any, place: Any = None, level: int = 0) -> Region:
    """Returns a region; pictures have no text."""
    drafts = [str(text).strip()] if text and label != Label.PICTURE else []
    return Region(None if place is None else box(place), label, 0, drafts, level)
