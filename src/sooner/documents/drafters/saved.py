"""Results and texts that other programs saved, as drafts.

Known from the programs' own documentation and sources, docling's by its own package:

- PP-StructureV3 (PaddleX' `layout_parsing/result_v2.py`): one `NAME_res.json` a page with
  `page_index` from 0 (null for pictures) and `parsing_res_list` of `{block_label, block_content,
  block_bbox}`, newer versions also `block_order`, `width` and `height`; its service wraps the same.
- docling: a `DoclingDocument`, by docling-core.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import SoonerError, error_line
from ..inputs import natural
from ..lines import is_item
from ..page import Page
from ..regions import (
    FORMULA,
    FURNITURE,
    LIST_ITEM,
    PICTURE,
    SECTION_HEADER,
    TABLE,
    TEXT,
    TITLE,
    PageDraft,
    Region,
    box,
    clipped,
    label_of,
    numbered,
    resized,
)
from ..serialise import FENCE
from ..tables import Cell, Table, to_html
from .mineru import THOUSANDTHS, is_content_list, read_content_list

OF_PAGE = re.compile(
    r"(?P<stem>.*?)(?:_page_(?P<page>\d+)(?:_\w+)?|_(?P<paddle>\d+)_res|[-_](?P<number>\d+))"
)
"""Names of a page's file: dots.ocr (`paper_page_0`) and PaddleX (`paper_0_res`) count from 0."""


class SavedFiles:
    """Reads the files of a folder and of the folders in it, or one file.

    Args:
        root: a folder, or a file that is meant for every document.
        suffixes: of the files that count.

    Raises:
        SoonerError: no such file or folder.
    """

    def __init__(self, root: Path, suffixes: Sequence[str]) -> None:
        self.root = root
        if not root.exists():
            raise SoonerError(f"'{root}' does not exist; give a file, or a folder of files")
        self.single = root if root.is_file() else None
        self.whole: dict[str, Path] = {}
        self.pages: dict[tuple[str, int], Path] = {}
        for path in sorted(root.rglob("*"), key=natural) if root.is_dir() else []:
            if path.suffix.lower() not in suffixes or not path.is_file():
                continue
            self.whole.setdefault(path.stem, path)
            if match := OF_PAGE.fullmatch(path.stem):
                index = match["page"] or match["paddle"]
                number = int(match["number"]) if index is None else int(index) + 1
                self.pages.setdefault((match["stem"], number), path)

    def of(self, page: Page) -> list[tuple[Path, bool]]:
        """Returns files that may be about a page, the best first, and whether they are of
        it alone.
        """
        if self.single is not None:
            return [(self.single, False)]
        stem = page.source.stem
        files = [(self.pages.get((stem, page.number)), True)]
        files += [(self.whole.get(f"{stem}{end}"), False) for end in ("", "_res", "_content_list")]
        return [(path, is_of_page) for path, is_of_page in files if path is not None]


HEADING = re.compile(r"(#{1,6})\s+(.*)")

IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")

SUFFIXES = (".md", ".markdown", ".txt", ".mmd")


class PlainText:
    """Makes regions of a text without boxes: paragraphs, headings, lists, tables and formulas.

    Args:
        path: a text for all documents, or a folder of texts that are called as the documents are:
            `paper.md` for `paper.pdf`, in which form feeds divide pages as `pdftotext` writes them;
            or `paper_3.md` or `paper-3.txt` for its page 3; or `paper_page_2.md` for the same page,
            as dots.ocr counts.

    Raises:
        SoonerError: no such file or folder.
    """

    name = "plain-text"

    def __init__(self, path: str | Path) -> None:
        self.files = SavedFiles(Path(path), SUFFIXES)

    def __call__(self, page: Page) -> PageDraft:
        began = time.perf_counter()
        regions, reason = self._read(page)
        return PageDraft(regions, time.perf_counter() - began, self.name, page.size, reason)

    def _read(self, page: Page) -> tuple[list[Region], str]:
        for path, is_of_page in self.files.of(page):
            try:
                text = path.read_text(encoding="utf-8", errors="replace")
            except OSError as error:
                raise SoonerError(f"'{path}' can't be read: {error.strerror}") from None
            content = text if is_of_page else _part(text, page)
            if content is not None:
                return numbered(list(blocks(content))), ""
        return [], f"no text for page {page.number} of '{page.source.name}' in '{self.files.root}'"


def _part(text: str, page: Page) -> str | None:
    """Returns a page's part of a whole document's text; all of it, if that is not divided."""
    pages = text.rstrip("\f\n").split("\f")
    if len(pages) == 1 and page.of > 1:
        return text
    return pages[page.number - 1] if page.number <= len(pages) else None


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
        yield Region(None, TITLE if level == 1 else SECTION_HEADER, 0, [title], level)
    text = IMAGE.sub("", block).strip()
    if text:
        yield Region(None, _label(text), 0, [text])
    elif block.strip():
        yield Region(None, PICTURE)


def _label(text: str) -> str:
    lines = text.splitlines()
    if "<table" in text.lower() or (len(lines) > 1 and all("|" in line for line in lines)):
        return TABLE
    if text.startswith(("$$", "\\[", "\\begin{")):
        return FORMULA
    return LIST_ITEM if is_item(text) else TEXT


PADDLE_SCALE = 2.0
"""Pixels a point at which PaddleX draws PDFs."""


def to_page(
    regions: Iterable[Region], page: Page, size: tuple[float, float] | None = None
) -> list[Region]:
    """Returns regions with boxes on the page's picture, in pixels.

    Args:
        regions: with boxes for a page of `size`.
        page: to bring them to.
        size: width and height in the unit of the boxes; the page's own pixels if not given.
    """
    return [
        region if region.bbox is None else replace(region, bbox=clipped(region.bbox, *page.size))
        for region in resized(regions, size, page.size)
    ]


class Format(NamedTuple):
    """A form that saved results have: how to know it, how to read a page's regions out of it, and
    what its JSON is made to before.

    `read` gives `None` if the file is not about that page.
    """

    is_mine: Callable[[Any], bool]
    read: Callable[[Any, Page], list[Region] | None]
    opened: Callable[[Any], Any] = lambda data: data


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


def _read_mineru(data: Any, page: Page) -> list[Region] | None:
    regions = read_content_list(data, page)
    return None if regions is None else to_page(regions, page, THOUSANDTHS)


def _is_docling(data: Any) -> bool:
    return isinstance(data, dict) and (
        data.get("schema_name") == "DoclingDocument"
        or (isinstance(data.get("body"), dict) and "texts" in data)
    )


def _open_docling(data: Any) -> Any:
    """Returns a `DoclingDocument`, which docling-core checks."""
    try:
        from docling_core.types.doc import DoclingDocument
    except ImportError:
        raise SoonerError(
            "docling's JSON needs docling-core; install it with: pip install 'sooner[docling]'"
        ) from None
    return DoclingDocument.model_validate(data)


def _read_docling(document: Any, page: Page) -> list[Region] | None:
    from docling_core.types.doc import ContentLayer, TableItem

    known = document.pages.get(page.number)
    if known is None and document.pages:
        return None
    size = page.native if known is None else (known.size.width, known.size.height)
    items: dict[str, Any] = {}  # by reference; captions of a table before it
    layers = set(ContentLayer)
    for item, _ in document.iterate_items(included_content_layers=layers, traverse_pictures=True):
        above = item.captions if isinstance(item, TableItem) else ()
        for part in (*(reference.resolve(document) for reference in above), item):
            items[part.self_ref] = part
    parts = [part for item in items.values() for part in _docling_parts(item, page.number, size)]
    return to_page(parts, page, size)


def _docling_parts(item: Any, number: int, size: tuple[float, float]) -> Iterator[Region]:
    """Yields an item's part on a page; one that goes over several has a share on each."""
    name, label = item.label.value, label_of(item.label.value)
    level = {TITLE: 1, SECTION_HEADER: getattr(item, "level", 0) + 1}.get(label, 0)
    for place in item.prov:
        if place.page_no == number:
            start, end = place.charspan
            share = slice(start, end) if len(item.prov) > 1 and end > start else slice(None)
            bbox = place.bbox.to_top_left_origin(size[1]).as_tuple()
            yield _region(name, _docling_text(item, label, share), bbox, level)


def _docling_text(item: Any, label: str, share: slice) -> str:
    if label == TABLE:
        rows: Table = [[] for _ in range(item.data.num_rows)]
        for cell in sorted(item.data.table_cells, key=lambda cell: cell.start_col_offset_idx):
            rows[cell.start_row_offset_idx].append(Cell(cell.text, cell.row_span, cell.col_span))
        return to_html(rows) if rows else ""
    text = (getattr(item, "text", "") or getattr(item, "orig", ""))[share].strip()
    if label == LIST_ITEM and text:
        return f"{item.marker.strip() if item.enumerated else '-'} {text}"
    return f"{FENCE}\n{text}\n{FENCE}" if item.label.value == "code" and text else text


def _read_draft(data: Any, page: Page) -> list[Region]:
    draft = PageDraft.from_json(data)
    return to_page(draft.regions, page, draft.size)


FORMATS = {
    "paddle": Format(lambda data: bool(_paddle_results(data)), _read_paddle),
    "mineru": Format(is_content_list, _read_mineru),
    "docling": Format(_is_docling, _read_docling, _open_docling),
    "sooner": Format(
        lambda data: isinstance(data, dict) and isinstance(data.get("regions"), list), _read_draft
    ),
}


class SavedJson:
    """Reads regions from files of PP-StructureV3, MinerU, docling, or `PageDraft.to_json`.

    Args:
        path: a file, or a folder in which files are called as these programs call them for
            `paper.pdf`: `paper_0_res.json` or `paper_1.json` for its page 1, `paper.json`,
            `paper_content_list.json`.

    Raises:
        SoonerError: no such path; when called, a file that is no JSON or of no known form.
    """

    name = "saved"

    def __init__(self, path: str | Path) -> None:
        self.files = SavedFiles(Path(path), (".json",))

    def __call__(self, page: Page) -> PageDraft:
        began = time.perf_counter()
        for path, is_of_page in self.files.of(page):
            try:
                read, data = _opened(path, path.stat().st_mtime_ns)
                regions = read(data, page)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
                reason = error_line(error)
                raise SoonerError(f"'{path}' is not as its format should be ({reason})") from None
            if regions is not None and (regions or is_of_page):
                seconds = time.perf_counter() - began
                return PageDraft(numbered(regions), seconds, self.name, page.size)
        reason = f"nothing saved of page {page.number} of '{page.source.name}'"
        seconds = time.perf_counter() - began
        return PageDraft([], seconds, self.name, page.size, f"{reason} in '{self.files.root}'")


@lru_cache(maxsize=1)
def _opened(path: Path, changed: int) -> tuple[Callable[[Any, Page], list[Region] | None], Any]:
    """Returns how a file is read, and what is in it; the last one is kept for its next page."""
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SoonerError(f"'{path}' can't be read: {error.strerror}") from None
    except ValueError as error:
        raise SoonerError(f"'{path}' is no JSON: {error}") from None
    for form in FORMATS.values():
        if form.is_mine(data):
            return form.read, form.opened(data)
    raise SoonerError(f"'{path}' has none of the known formats: {', '.join(FORMATS)}")
