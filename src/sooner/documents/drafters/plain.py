"""Plain text and Markdown files as drafts: what is on a page, but not where."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

from ...errors import SoonerError
from ..labels import FORMULA, LIST_ITEM, PICTURE, SECTION_HEADER, TABLE, TEXT, TITLE
from ..lines import is_item
from ..page import Page
from ..regions import PageDraft, Region, numbered
from .files import SavedFiles

HEADING = re.compile(r"(#{1,6})\s+(.*)")
IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
SUFFIXES = (".md", ".markdown", ".txt", ".mmd")


class PlainText:
    """Paragraphs, headings, lists, tables and formulas of a text, without boxes.

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
            found = text if is_of_page else _part(text, page)
            if found is not None:
                return numbered(list(blocks(found))), ""
        return [], f"no text for page {page.number} of '{page.source.name}' in '{self.files.root}'"


def _part(text: str, page: Page) -> str | None:
    """A page's part of a whole document's text; all of it, if that is not divided."""
    pages = text.rstrip("\f\n").split("\f")
    if len(pages) == 1 and page.of > 1:
        return text
    return pages[page.number - 1] if page.number <= len(pages) else None


def blocks(text: str) -> Iterator[Region]:
    """Regions of a Markdown text, one for each block between blank lines."""
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
