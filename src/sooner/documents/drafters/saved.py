"""Results and texts that other programs saved, as drafts.

Known from the programs' own documentation and sources, docling's from its own test files:

- PP-StructureV3 (PaddleX' `layout_parsing/result_v2.py`): one `NAME_res.json` a page with
  `page_index` from 0 (null for pictures) and `parsing_res_list` of `{block_label, block_content,
  block_bbox}`, newer versions also `block_order`, `width` and `height`; its service wraps the same.
- docling (`tests/data/groundtruth`): a `DoclingDocument`, whose `body.children` refer to items
  with `prov` of `page_no` from 1 and boxes in points.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import SoonerError
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


def _read_mineru(data: Any, page: Page) -> list[Region] | None:
    regions = read_content_list(data, page)
    return None if regions is None else to_page(regions, page, THOUSANDTHS)


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
    "mineru": Format(is_content_list, _read_mineru),
    "docling": Format(_is_docling, _read_docling),
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
            data = _load(path)
            form = _form_of(data, path)
            try:
                regions = form.read(data, page)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
                reason = f"{type(error).__name__}: {error}"
                raise SoonerError(f"'{path}' is not as its format should be ({reason})") from None
            if regions is not None and (regions or is_of_page):
                seconds = time.perf_counter() - began
                return PageDraft(numbered(regions), seconds, self.name, page.size)
        reason = f"nothing saved of page {page.number} of '{page.source.name}'"
        seconds = time.perf_counter() - began
        return PageDraft([], seconds, self.name, page.size, f"{reason} in '{self.files.root}'")


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SoonerError(f"'{path}' can't be read: {error.strerror}") from None
    except ValueError as error:
        raise SoonerError(f"'{path}' is no JSON: {error}") from None


def _form_of(data: Any, path: Path) -> Format:
    for form in FORMATS.values():
        if form.is_mine(data):
            return form
    raise SoonerError(f"'{path}' has none of the known formats: {', '.join(FORMATS)}")
