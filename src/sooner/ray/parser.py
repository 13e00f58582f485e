"""`Parser`: the way of a page on Ray, many at once over one continuous engine an actor.

Rows between stages never hold pixels; a stage passes columns on that it does not know:

| column | made by | what |
|---|---|---|
| `path` | you | file of the document, the same on every machine, or its URL |
| `page` | you | number from 1; 0 for what is wrong with the document, below 0 for no page |
| `problem` | the job | why nothing of the document can be written; empty for nothing |
| `place` | you, or left out | name of the document in the results; by default the file's |
| `hash` | the job | of the document's content |
| `told` | the job | JSON for the driver; goes through as it is |
| `status` | `Parser` | of the page |
| `markdown`, `parsed` | `Parser` alone | text, and JSON of a `ParsedPage` |
| `line` | `Parser` of a job | JSON of the page's line in the manifest |
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..documents import BrokenPage, Document, Page, PageDraft, PageRange, fetched
from ..errors import SoonerError, error_line, is_device_fault
from ..storage import is_url
from ..tasks.parse.drafters import TIMEOUT, guard, make_drafter
from ..tasks.parse.output import Intake, ParseOutput
from ..tasks.parse.records import PageTask
from ..tasks.parse.result import FAILED, ParsedPage
from ..tasks.parse.settings import ParseSettings

if TYPE_CHECKING:
    from ..tasks.parse import DraftParser, PageParser

logger = logging.getLogger("sooner")

FAULT = 70
"""Exit code of an actor whose accelerator failed, so that another process takes its place."""

IN_FLIGHT, SLOTS = 8, 256
"""Pages under way at once in an actor: by default, and at most."""

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


class ParserStage:
    """Parses pages in Ray Data's `map_batches`: an async generator over one engine an actor.

        >>> parsed = pages.map_batches(
        ...     Parser, fn_constructor_kwargs={"model": "zai-org/GLM-OCR"}, num_gpus=1,
        ...     concurrency=2, batch_size=1,
        ... )

    A page is read, drafted, parsed and, with an `output`, written. Rows have `path` and `page`;
    they get `status`, and `markdown` and `parsed` or, with an `output`, `line`.
    Batches that are under way at once in an actor share the rounds of its engine, whatever their
    documents. A batch of one page ends with its page; give an actor several of them with
    `ray.data.ActorPoolStrategy(size=..., max_tasks_in_flight_per_actor=8,
    max_concurrent_calls_per_actor=8)`. What goes wrong with a page is a row with status FAILED.
    Where the accelerator fails, the process ends, and Ray starts another one.

    Args:
        model: hub id or folder; `None` takes the drafts as they are (status DRAFT).
        settings: how.
        intake: how pages are read; that of `output` where there is one.
        pages_in_flight: pages under way at once.
        drafter: `auto` (a PDF's own text where it is good, else OCR), `ocr`, `text-layer`,
            `saved:FILE`, `text:FILE`, or `none`; several with commas between. OCR runs in a process
            of its own, which is killed where it hangs.
        timeout: seconds for a page's draft.
        output: takes the pages; it is recorded there that a page was begun, so that one that kills
            its process is set aside.
        device, dtype, trust_remote_code: as `load_parser`.
        threads: of torch on CPUs; by default torch's.
        notes_of: notes for the pages of a document.
        load: makes another parser than that of `model`: an object with `ask`, and an async method
            `parse` as `ConcurrentParser` has.
    """

    def __init__(
        self,
        model: str | None = None,
        settings: ParseSettings | None = None,
        intake: Intake | None = None,
        pages_in_flight: int = IN_FLIGHT,
        *,
        drafter: str = "auto",
        timeout: float = TIMEOUT,
        output: ParseOutput | None = None,
        device: str = "auto",
        dtype: str = "auto",
        trust_remote_code: bool = False,
        threads: int | None = None,
        notes_of: Callable[[Path], list[str]] | None = None,
        load: Callable[[], Any] | None = None,
    ) -> None:
        self.read = RowReader(intake or (output.intake if output else Intake()))
        self.output, self.notes_of = output, notes_of
        # A page at which a process died takes all slots: others would be blamed as well.
        self._slots, self._entering = asyncio.Semaphore(SLOTS), asyncio.Lock()
        self._reading = ThreadPoolExecutor(1, "pages")  # pdfium is for one thread
        self._storing = ThreadPoolExecutor(1, "store")
        self._broken: SoonerError | None = None
        try:
            self.drafter = guard(make_drafter(drafter), drafter, timeout)
            if load is not None:
                self.parser = load()
            elif model is None:
                self.parser = _drafts_parser()
            else:
                self.parser = _model_parser(
                    model, settings, pages_in_flight, device, dtype, trust_remote_code, threads
                )
        except SoonerError as error:  # an actor that does not come up would be started for ever
            self._broken = error

    async def __call__(self, batch: Batch) -> AsyncIterator[dict[str, list[Any]]]:
        """Yields rows of a batch, each as it ends.

        Raises:
            SoonerError: the model can't be loaded, or nothing more can be written.
        """
        if self._broken is not None:
            raise self._broken
        tasks = [asyncio.ensure_future(self._row(row)) for row in rows_of(batch)]
        try:
            for task in asyncio.as_completed(tasks):
                yield batch_of([await task])
        finally:
            for item in tasks:
                item.cancel()

    async def _row(self, row: Row) -> Row:
        if self.output is None:
            async with self._turn(1):
                _, parsed = await self._parsed(row)
            text = json.dumps(parsed.to_json())
            return {**row, "status": parsed.status, "markdown": parsed.markdown, "parsed": text}
        line = await self._kept(row, self.output) if is_page(row) else None
        return {**row, "status": line["status"] if line else "", "line": json.dumps(line)}

    async def _kept(self, row: Row, output: ParseOutput) -> dict[str, Any]:
        """Returns the line of a page that is written; an attempt is recorded until it is."""
        name, number, attempts = place_of(row).as_posix(), int(row["page"]), output.deaths
        task = PageTask(str(row["path"]), name, row["hash"], output.settings_hash, number)
        deaths = await self._store(attempts.count, task.key)
        if deaths >= attempts.maximum:
            reason = await self._store(attempts.reason, task.key)
            failed = ParsedPage(name, number, FAILED, f"{reason}; --fresh tries it again")
            return await self._store(output.keep, task, None, failed, True)
        async with self._turn(SLOTS if deaths else 1):
            attempt = await self._store(attempts.begin, task.key, f"{name}, page {number}")
            try:
                page, parsed = await self._parsed(row)
                picture = page if isinstance(page, Page) else None
                return await self._store(output.keep, task, picture, parsed)
            finally:
                attempts.end(attempt)

    @asynccontextmanager
    async def _turn(self, slots: int) -> AsyncIterator[None]:
        """Hold so many slots; who comes later waits for those who wait."""
        acquired = 0
        try:
            async with self._entering:
                while acquired < slots:
                    await self._slots.acquire()
                    acquired += 1
            yield
        finally:
            for _ in range(acquired):
                self._slots.release()

    async def _parsed(self, row: Row) -> tuple[Page | BrokenPage, ParsedPage]:
        """Returns a page and its result; an error becomes a result with status FAILED."""
        began, name = time.perf_counter(), place_of(row).as_posix()
        loop = asyncio.get_running_loop()
        page, draft, read = await loop.run_in_executor(self._reading, self._drafted, row)
        try:
            parsed = await self._result(page, draft, name)
        except Exception as error:
            reason = str(error) if isinstance(error, SoonerError) else error_line(error)
            if is_device_fault(error):
                logger.error("the device failed at '%s': %s", row["path"], reason)
                os._exit(FAULT)
            size = page.size if isinstance(page, Page) else (0, 0)
            parsed = ParsedPage(name, page.number, FAILED, reason, size=size)
        seconds = {"read": read, **parsed.seconds, "e2e": time.perf_counter() - began}
        return page, replace(parsed, seconds=seconds)

    async def _result(
        self, page: Page | BrokenPage, draft: PageDraft | None, name: str
    ) -> ParsedPage:
        """Returns what the parser makes of a page, with what is known of it besides.

        Raises:
            Exception: what went wrong with the page.
        """
        if isinstance(page, BrokenPage):
            raise SoonerError(page.reason)
        parsed = await self.parser.parse(page, draft)
        seconds = {"drafter": draft.seconds if draft is not None else 0.0, **parsed.seconds}
        notes = [] if self.notes_of is None else self.notes_of(page.source)
        notes = [*page.notes, *notes, *parsed.notes]
        form = self.parser.ask.form
        return parsed.encodable(source=name, form=form, seconds=seconds, notes=notes)

    def _drafted(self, row: Row) -> tuple[Page | BrokenPage, PageDraft | None, float]:
        """Returns a row's page, its draft, and the seconds that reading took."""
        began = time.perf_counter()
        page = self.read(row)
        read = time.perf_counter() - began
        if self.drafter is None or isinstance(page, BrokenPage):
            return page, None, read
        return page, self.drafter(page), read

    async def _store(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call what waits for the store of the results, in the thread for that."""
        return await asyncio.get_running_loop().run_in_executor(self._storing, call, *args)


class SinglePageParser:
    """A parser of one page at a time, behind the interface of one that takes many."""

    def __init__(self, parser: PageParser | DraftParser) -> None:
        self.parser, self.ask = parser, parser.ask
        self._thread = ThreadPoolExecutor(1, "parser")

    async def parse(self, page: Page, draft: PageDraft | None = None) -> ParsedPage:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self.parser, page, draft)


def _drafts_parser() -> SinglePageParser:
    """Takes drafts as they are; loads nothing."""
    from ..tasks.parse import DraftParser

    return SinglePageParser(DraftParser())


def _model_parser(
    model: str,
    settings: ParseSettings | None,
    pages_in_flight: int,
    device: str,
    dtype: str,
    trust_remote_code: bool,
    threads: int | None,
) -> Any:
    """Returns a model with an engine for `pages_in_flight` pages.

    Raises:
        SoonerError: it can't be loaded, or does not read pages.
    """
    from ..methods.threads import Threads
    from ..tasks.parse import ConcurrentParser, load_parser

    pair = load_parser(model, device, dtype, trust_remote_code)
    Threads.plan(threads, is_miniature=pair.miniature is not None).apply()
    return ConcurrentParser(pair, settings, pages_in_flight=pages_in_flight)
