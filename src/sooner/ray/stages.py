"""Stages of parsing for Ray Data's `map_batches`, and the rows between them: never pixels.

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
| `line` | `Write` | JSON of the page's line in the manifest |

A stage passes columns on that it does not know.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..documents import BrokenPage, Document, Page, PageRange, fetched
from ..storage import ObjectError, is_url
from ..tasks.identity import sha256
from ..tasks.parse.delivery import Delivery
from ..tasks.parse.drafters import TIMEOUT, guard, make_drafter
from ..tasks.parse.output import DocumentWork, Intake, ParseOutput
from ..tasks.parse.records import Line, PageTask, key_of
from ..tasks.parse.result import FAILED, ParsedPage

SETTINGS = "map_batches"
"""Stands for the hash of settings where the caller names none."""

Row = dict[str, Any]
Batch = Mapping[str, Any]
"""Columns of a batch, each a sequence of as many values."""


def rows_of(batch: Batch) -> Iterator[Row]:
    """Yields the rows of a batch, values as Python's own."""
    names = list(batch)
    for values in zip(*(batch[name] for name in names), strict=True):
        plain = (value.item() if hasattr(value, "item") else value for value in values)
        yield dict(zip(names, plain, strict=True))


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


class PlanStage:
    """What is left to be done of documents: a row a page; one of no page where there is none.

    Args:
        output: says what is done.
    """

    def __init__(self, output: ParseOutput) -> None:
        self.output = output

    def __call__(self, batch: Batch) -> Iterator[dict[str, list[Any]]]:
        """Yields a row at a time; `document` of a batch is JSON of number, source and place, since
        names of files need not be Unicode.

        Raises:
            SoonerError: the store of the results can't be read or written.
        """
        for entry in batch["document"]:
            for row in self._rows(*json.loads(entry)):
                yield batch_of([row])

    def _rows(self, number: int, source: str, place: str) -> Iterator[Row]:
        document = document_at(source, Path(place))
        try:
            with fetched(document) as local:
                work = self.output.plan(local)
                if not work.todo and not work.is_delivered:
                    self.output.finish(work)
        except ObjectError as error:  # its files can't be written
            hashed, settings_hash = key_of("", place), self.output.settings_hash
            work = DocumentWork(document, hashed, settings_hash, todo=1, problem=str(error))
        pages = [*work.left, 0] if work.todo > len(work.left) else work.left
        for page in pages or [-1]:
            yield _row(work, page, number)


def _row(work: DocumentWork, page: int, number: int) -> Row:
    told = {
        "document": number, "todo": work.todo, "before": work.done, "aside": work.aside,
        "of": work.of,
    }  # fmt: skip
    return {
        # Columns are Unicode, which names of files need not be.
        "path": work.document.source.encode(errors="backslashreplace").decode(),
        "place": work.place.encode(errors="backslashreplace").decode(),
        "hash": work.input_hash,
        "page": page,
        "problem": work.problem,
        "told": json.dumps(told),
    }


class OCRStage:
    """Drafts pages for `Parser`, in Ray Data's `map_batches`.

        >>> drafted = pages.map_batches(OCR, num_cpus=1, concurrency=4, batch_size=1)

    Rows have `path` and `page`, and get `draft`, and `read`: the seconds that reading took. A page
    that can't be read, or that OCR fails or hangs at, has an empty draft with the reason, so the
    pages behind it go on; OCR itself runs in a process of its own, which is killed where it hangs.

    Args:
        drafter: `auto` (a PDF's own text where it is good, else OCR), `ocr`, `text-layer`,
            `saved:FILE`, `text:FILE`, or `none`; several with commas between.
        intake: how pages are read; as `Parser` reads them, or boxes don't fit.
        timeout: seconds for a page.
        processes: 0 runs OCR in the actor's own process, where it can't be killed alone.

    Raises:
        SoonerError: an unknown name, a file that does not exist, or OCR that is not installed.
    """

    def __init__(
        self,
        drafter: str = "auto",
        intake: Intake | None = None,
        timeout: float = TIMEOUT,
        processes: int = 1,
    ) -> None:
        self.read = RowReader(intake or Intake())
        self.drafter = guard(make_drafter(drafter), drafter, timeout, processes)

    def __call__(self, batch: Batch) -> dict[str, list[Any]]:
        return batch_of({**row, **self._drafted(row)} for row in rows_of(batch))

    def _drafted(self, row: Row) -> Row:
        if self.drafter is None or not is_page(row):
            return {"draft": "", "read": 0.0}
        began = time.perf_counter()
        page = self.read(row)
        read = time.perf_counter() - began
        draft = json.dumps(self.drafter(page).to_json()) if isinstance(page, Page) else ""
        return {"draft": draft, "read": read}


class WriteStage:
    """Writes pages that `Parser` parsed, in Ray Data's `map_batches`.

        >>> written = parsed.map_batches(
        ...     Write, fn_constructor_kwargs={"output": "out"}, num_cpus=0.1, concurrency=1
        ... )

    Each page becomes an object of its own and its files; with a document's last page its own files
    are written as well. Twice is harmless and gives the same bytes. Rows lose `parsed` and
    `markdown` and get `line`.

    Args:
        output: folder or URL; or `ParseOutput`, which say more.
        formats: files of each page and document.
        intake: how pages are read.
        finishes: write documents; `RayJob` does that apart.

    Raises:
        SoonerError: an unknown format, or a folder that can't be written.
    """

    def __init__(
        self,
        output: Path | str | ParseOutput,
        formats: tuple[str, ...] = ("md", "json"),
        intake: Intake | None = None,
        finishes: bool = True,
    ) -> None:
        if not isinstance(output, ParseOutput):
            delivery = Delivery(output, formats)
            output = ParseOutput(delivery, SETTINGS, intake or Intake())
        self.output, self.finishes = output, finishes
        self.read = RowReader(output.intake)
        self._written: dict[tuple[str, str], set[int]] = {}  # of documents that are not finished

    def __call__(self, batch: Batch) -> dict[str, list[Any]]:
        """Write the pages of a batch.

        Raises:
            SoonerError: a file can't be written.
        """
        return batch_of(map(self._row, rows_of(batch)))

    def _row(self, row: Row) -> Row:
        fields = {name: row[name] for name in row if name not in ("parsed", "markdown", "draft")}
        if not is_page(row):
            return {**fields, "line": ""}
        path, output = str(row["path"]), self.output
        hashed, place = row.get("hash") or sha256(path), place_of(row).as_posix()
        task = PageTask(path, place, hashed, output.settings_hash, int(row["page"]))
        parsed = ParsedPage.from_json(json.loads(row["parsed"]))
        is_drawn = parsed.status != FAILED and bool(output.delivery.figures)
        page = self.read(row) if is_drawn else None
        if isinstance(page, BrokenPage):
            parsed, page = replace(parsed, status=FAILED, reason=page.reason), None
        line = output.keep(task, page, parsed, bool(row.get("aside")))
        if self.finishes and line["status"] != FAILED:
            written = self._written.setdefault((place, hashed), set())
            written |= {task.number} if line["files"] else set()
            is_done, failed = finish_document(output, task, int(row["of"]), written)
            if is_done:
                del self._written[place, hashed]
            line = failed or line
        return {**fields, "line": json.dumps(line)}


def finish_document(
    output: ParseOutput, task: PageTask, of: int, written: Collection[int] = ()
) -> tuple[bool, Line | None]:
    """Write a document's files, if no page of it is still to come.

    Args:
        output: the folder.
        task: any of its pages.
        of: pages that it has.
        written: those whose files are known to be there.

    Returns:
        Whether none was to come; and the line of a failure where a file can't be written.

    Raises:
        StorageError: nothing more can be written, of whatever document.
    """
    work = DocumentWork(
        document_at(task.path, Path(task.place)),
        task.input_hash,
        task.settings_hash,
        of=of,
        numbers=output.intake.pages.select(of),
        written={*written},
    )
    try:
        return output.finish(work), None
    except ObjectError as error:
        return True, output.fail(work, str(error))
