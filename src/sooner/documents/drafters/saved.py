"""Results and texts that other programs saved, as drafts.

Known from the programs' own documentation and sources, docling's by its own package:

- PP-StructureV3 (PaddleX' `layout_parsing/result_v2.py`): one `NAME_res.json` a page with
  `page_index` from 0 (null for pictures) and `parsing_res_list` of `{block_label, block_content,
  block_bbox}` in reading order, newer versions also `width` and `height`.
- MinerU (`docs/en/reference/output_files.md`): `NAME_content_list.json`, flat and in reading order:
  `type`, `page_idx` from 0, `bbox` in thousandths of the page (older versions have none), and by
  type `text` (with `text_level`), `table_body` (HTML) with captions and footnotes, `list_items`,
  `code_body`.
- docling: a `DoclingDocument`, by docling-core.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...errors import SoonerError, error_line
from ..inputs import natural
from ..lines import is_item
from ..page import Page
from ..regions import (
    CAPTION,
    FOOTNOTE,
    FORMULA,
    LIST_ITEM,
    PICTURE,
    SECTION_HEADER,
    TABLE,
    TEXT,
    TITLE,
    PageDraft,
    Region,
    Size,
    box,
    clipped,
    label_of,
    numbered,
    resized,
)
from ..serialise import FENCE
from ..tables import Cell, Table, to_html

THOUSANDTHS = (1000.0, 1000.0)

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

PageRegions = tuple[list[Region], tuple[float, float]]
"""Regions of a page, and its width and height in the unit of their boxes."""


def _region(
    name: str, text: Any, place: Any = None, level: int = 0, label: str | None = None
) -> Region:
    """Returns a region by another program's name for what it is; pictures have no text."""
    label, text = label or label_of(name), str(text or "").strip()
    drafts = [text] if text and label != PICTURE else []
    return Region(None if place is None else box(place), label, 0, drafts, level)


def _fenced(code: str) -> str:
    return code if FENCE in code else f"{FENCE}\n{code.strip()}\n{FENCE}"


def _is_paddle(data: Any) -> bool:
    return isinstance(data, dict) and isinstance(data.get("parsing_res_list"), list)


def _read_paddle(data: Any, page: Page) -> PageRegions | None:
    if data.get("page_index") not in (None, page.number - 1):
        return None
    regions = []
    for block in data["parsing_res_list"]:
        name = str(block.get("block_label", "text"))
        level = {TITLE: 1, SECTION_HEADER: 2}.get(label_of(name), 0)
        regions.append(_region(name, block.get("block_content"), block.get("block_bbox"), level))
    scale = PADDLE_SCALE if page.is_pdf else 1.0
    width, height = (data.get(name) for name in ("width", "height"))
    return regions, (width or page.native[0] * scale, height or page.native[1] * scale)


def _is_mineru(data: Any) -> bool:
    return (
        bool(data)
        and isinstance(data, list)
        and all(isinstance(item, dict) and "type" in item and "page_idx" in item for item in data)
    )


def _read_mineru(data: Any, page: Page) -> PageRegions | None:
    items = [item for item in data if int(item["page_idx"]) == page.number - 1]
    regions = [region for item in items for region in _mineru_item(item)]
    return (regions, THOUSANDTHS) if items else None


def _mineru_item(item: dict[str, Any]) -> list[Region]:
    """Returns an item between its captions and its footnotes, which have no box; the captions of a
    picture follow it."""
    name, text, level = str(item["type"]), item.get("text"), int(item.get("text_level") or 0)
    label = label_of(name)
    if name == "text" and level:
        label = TITLE if level == 1 else SECTION_HEADER
    if "list_items" in item:
        label = LIST_ITEM
        texts = (str(entry).strip() for entry in item["list_items"])
        text = "\n".join(entry if is_item(entry) else f"- {entry}" for entry in texts)
    elif "code_body" in item:
        label, text = TEXT, _fenced(str(item["code_body"]))
    body = _region(name, item.get("table_body") or text, item.get("bbox"), level, label)
    notes: dict[str, list[Region]] = {CAPTION: [], FOOTNOTE: []}
    for kind, regions in notes.items():
        for key, value in item.items():
            if key.endswith(f"_{kind.lower()}"):
                values = [value] if isinstance(value, str) else value or []
                regions += [_region(kind, note) for note in values if str(note).strip()]
    parts = [[body], notes[CAPTION]] if label == PICTURE else [notes[CAPTION], [body]]
    return [*parts[0], *parts[1], *notes[FOOTNOTE]]


def _is_docling(data: Any) -> bool:
    return isinstance(data, dict) and (
        data.get("schema_name") == "DoclingDocument"
        or (isinstance(data.get("body"), dict) and "texts" in data)
    )


def _docling_document(data: Any) -> Any:
    """Returns a `DoclingDocument`, which docling-core checks."""
    try:
        from docling_core.types.doc import DoclingDocument
    except ImportError:
        raise SoonerError(
            "docling's JSON needs docling-core; install it with: pip install 'sooner[docling]'"
        ) from None
    return DoclingDocument.model_validate(data)


def _read_docling(document: Any, page: Page) -> PageRegions | None:
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
    return parts, size


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
    return _fenced(text) if item.label.value == "code" and text else text


def _is_draft(data: Any) -> bool:
    return isinstance(data, dict) and isinstance(data.get("regions"), list)


def _read_draft(data: Any, page: Page) -> PageRegions:
    draft = PageDraft.from_json(data)
    return draft.regions, draft.size


FORMATS: dict[str, tuple[Callable[[Any], bool], Callable[[Any, Page], PageRegions | None]]] = {
    "paddle": (_is_paddle, _read_paddle),
    "mineru": (_is_mineru, _read_mineru),
    "docling": (_is_docling, _read_docling),
    "sooner": (_is_draft, _read_draft),
}
"""How a format is known by its JSON, and how the regions of a page are read out of it; `None` if
the file is not about that page."""


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
        regions, reason = self._read(page)
        return PageDraft(regions, time.perf_counter() - began, self.name, page.size, reason)

    def _read(self, page: Page) -> tuple[list[Region], str]:
        for path, is_of_page in self.files.of(page):
            try:
                read, data = _opened(path, path.stat().st_mtime_ns)
                answer = read(data, page)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
                reason = error_line(error)
                raise SoonerError(f"'{path}' is not as its format should be ({reason})") from None
            if answer is not None and (answer[0] or is_of_page):
                return numbered(_clipped(resized(*answer, page.size), page.size)), ""
        reason = f"nothing saved of page {page.number} of '{page.source.name}'"
        return [], f"{reason} in '{self.files.root}'"


def _clipped(regions: Sequence[Region], size: Size) -> list[Region]:
    return [
        region if region.bbox is None else replace(region, bbox=clipped(region.bbox, *size))
        for region in regions
    ]


@lru_cache(maxsize=1)
def _opened(path: Path, changed: int) -> tuple[Callable[[Any, Page], PageRegions | None], Any]:
    """Returns how a file is read, and what is in it; the last one is kept for its next page."""
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SoonerError(f"'{path}' can't be read: {error.strerror}") from None
    except ValueError as error:
        raise SoonerError(f"'{path}' is no JSON: {error}") from None
    for is_mine, read in FORMATS.values():
        if is_mine(data):
            return read, _docling_document(data) if read is _read_docling else data
    raise SoonerError(f"'{path}' has none of the known formats: {', '.join(FORMATS)}")
