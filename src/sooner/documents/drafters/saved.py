"""Results and texts that other programs saved, as drafts."""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...checks import check_choice
from ...errors import SoonerError
from ..inputs import natural
from ..lines import is_item
from ..page import Page
from ..regions import (
    FORMULA,
    LIST_ITEM,
    PICTURE,
    SECTION_HEADER,
    TABLE,
    TEXT,
    TITLE,
    PageDraft,
    Region,
    numbered,
)
from .saved_formats import FORMATS

FROM_ZERO = re.compile(r"_page_(\d+)(?:_\w+)?|_(\d+)_res")
"""Page numbers as dots.ocr (`paper_page_0`) and PaddleX (`paper_0_res`) put them into names."""

PAGE_NUMBER = re.compile(r"[-_](\d+)")

WHOLE = ("", "_res")
"""What stands behind a document's name if a file is about all of it, in order of preference."""


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
        self.by_start: dict[str, list[Path]] = defaultdict(list)  # first 4 letters -> files
        for path in sorted(root.rglob("*"), key=natural) if root.is_dir() else []:
            if path.suffix.lower() in suffixes and path.is_file():
                self.by_start[path.stem[:4]].append(path)

    def of(self, page: Page) -> list[tuple[Path, bool]]:
        """Returns files that may be about a page, the best first, and whether they are of
        it alone.
        """
        if self.single is not None:
            return [(self.single, False)]
        stem = page.source.stem
        files: list[tuple[int, Path]] = []
        for path in self.by_start.get(stem[:4], []):
            rank = _rank(path.stem, stem, page.number)
            if rank is not None:
                files.append((rank, path))
        return [(path, rank == 0) for rank, path in sorted(files, key=lambda entry: entry[0])]


def _rank(name: str, stem: str, number: int) -> int | None:
    """0 for a file of that page, more for one of the document, `None` for another one's."""
    if not name.startswith(stem):
        return None
    rest = name[len(stem) :]
    if match := FROM_ZERO.fullmatch(rest):
        return 0 if int(match[1] or match[2]) + 1 == number else None
    if match := PAGE_NUMBER.fullmatch(rest):
        return 0 if int(match[1]) == number else None
    return 1 + WHOLE.index(rest) if rest in WHOLE else None


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


class SavedJson:
    """Reads regions from files of PP-StructureV3, docling, or `PageDraft.to_json`.

    Args:
        path: a file, or a folder in which files are called as these programs call them for
            `paper.pdf`: `paper_0_res.json`, `paper.json`, `paper_1.json` for its page 1.
        form: one of `FORMATS`, if it shall not be told from the content.

    Raises:
        SoonerError: no such path or form; when called, a file that is no JSON or of no known form.
    """

    def __init__(self, path: str | Path, form: str | None = None) -> None:
        if form is not None:
            check_choice("format of saved results", form, FORMATS)
        self.files = SavedFiles(Path(path), (".json",))
        self.form = form
        self.name = f"saved-{form}" if form else "saved"

    def __call__(self, page: Page) -> PageDraft:
        began = time.perf_counter()
        for path, is_of_page in self.files.of(page):
            data = _load(path)
            form = FORMATS[self.form or _form_of(data, path)]
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


def _form_of(data: Any, path: Path) -> str:
    for name, form in FORMATS.items():
        if form.is_mine(data):
            return name
    raise SoonerError(f"'{path}' has none of the known formats: {', '.join(FORMATS)}")
