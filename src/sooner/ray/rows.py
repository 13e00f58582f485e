"""Rows that go from stage to stage: paths, page numbers and texts, never pixels.

| column | made by | what |
|---|---|---|
| `path` | you | file of the document, the same on every machine, or its URL |
| `page` | you | number from 1; 0 for what is wrong with the document, below 0 for no page |
| `problem` | the job | why nothing of the document can be written; empty for nothing |
| `place` | you, or left out | name of the document in the results; by default the file's |
| `hash` | you, or left out | of the document's content |
| `told` | the job | JSON for the driver; goes through as it is |
| `draft` | `OCR` | JSON of a `PageDraft`; empty for none |
| `read` | `OCR` | seconds that it took to read the page |
| `parsed` | `Parser` | JSON of a `ParsedPage` |
| `status`, `markdown` | `Parser` | the two of it that most want |
| `of` | `Parser` | pages of the document |
| `aside` | `Parser` | the page is not tried again: processes died at it |
| `starved` | `Parser` | seconds in which its actor had no page under way before this one |
| `line` | `Write` | JSON of the page's line in the manifest |

A stage passes columns on that it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..documents import BrokenPage, Document, Page, PageDraft, PageRange, fetched
from ..storage import is_url
from ..tasks.parse.plan import Intake
from ..tasks.parse.result import ParsedPage

Row = dict[str, Any]
Batch = Mapping[str, Any]
"""Columns of a batch, each a sequence of as many values."""


def rows_of(batch: Batch) -> Iterator[Row]:
    """Yields the rows of a batch, values as Python's own."""
    names = list(batch)
    for values in zip(*(batch[name] for name in names), strict=True):
        yield {name: _plain(value) for name, value in zip(names, values, strict=True)}


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def batch_of(rows: Iterable[Row]) -> dict[str, list[Any]]:
    """Returns rows of the same columns as a batch."""
    items = list(rows)
    return {name: [row[name] for row in items] for name in (items[0] if items else ())}


def is_page(row: Row) -> bool:
    """Returns whether a row stands for a page, and not for counts alone."""
    return int(row["page"]) >= 0


def place_of(row: Row) -> Path:
    """Returns where the results of a row's document go."""
    return Path(row.get("place") or Path(row["path"]).name)


def document_at(source: str, place: Path) -> Document:
    """Returns the document at a path or a URL."""
    return Document(Path(source), place, source if is_url(source) else None)


class RowReader:
    """Reads pages of rows; of what lies behind URLs the last document is kept.

    Args:
        intake: how pages are read.
    """

    def __init__(self, intake: Intake) -> None:
        self.intake = intake
        self._stack = ExitStack()
        self._document: Document | None = None

    def __call__(self, row: Row) -> Page | BrokenPage:
        """Returns the page of a row.

        Raises:
            SoonerError: what reads such files is not installed.
        """
        if problem := row.get("problem"):
            return BrokenPage(Path(str(row["path"])), int(row["page"]), str(problem))
        document, number = self._fetched(row), int(row["page"])
        page_range = PageRange(((number, number),) if number else ())
        for page in self.intake.read(document, page_range):
            if page.number == number:
                return page
            if isinstance(page, BrokenPage):  # the document as a whole
                return BrokenPage(document.path, number, page.reason)
        reason = "is not there any more; the file changed meanwhile"
        return BrokenPage(document.path, number, reason)

    def _fetched(self, row: Row) -> Document:
        document = document_at(str(row["path"]), place_of(row))
        if document.url is None:
            return document
        if self._document is None or self._document.url != document.url:
            self._stack.close()
            self._document = self._stack.enter_context(fetched(document))
        return self._document


def draft_to_text(draft: PageDraft | None) -> str:
    return "" if draft is None else json.dumps(draft.to_json())


def draft_of(row: Row) -> PageDraft | None:
    """Returns the draft of a row; `None` where nobody drafted."""
    text = row.get("draft")
    return PageDraft.from_json(json.loads(text)) if text else None


def parsed_of(row: Row) -> ParsedPage:
    return ParsedPage.from_json(json.loads(row["parsed"]))
