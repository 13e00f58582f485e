"""`Parser`: pages over one continuous engine an actor, yielded as they end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..documents import BrokenPage, Page, PageDraft
from ..errors import SoonerError, error_line, is_device_fault
from ..tasks.parse.output import Intake
from ..tasks.parse.records import page_key
from ..tasks.parse.result import FAILED, ParsedPage
from ..tasks.parse.settings import ParseSettings
from .stages import Batch, Row, RowReader, batch_of, is_page, place_of, rows_of

if TYPE_CHECKING:
    from ..storage.attempts import Attempts
    from ..tasks.parse import DraftParser, PageParser

logger = logging.getLogger("sooner")

FAULT = 70
"""Exit code of an actor whose accelerator failed, so that another process takes its place."""

IN_FLIGHT, SLOTS = 8, 256
"""Pages under way at once in an actor: by default, and at most."""


class ParserStage:
    """Parses pages in Ray Data's `map_batches`: an async generator over one engine an actor.

        >>> parsed = drafted.map_batches(
        ...     Parser, fn_constructor_kwargs={"model": "zai-org/GLM-OCR"}, num_gpus=1,
        ...     concurrency=2, batch_size=1,
        ... )

    Rows have `path`, `page` and, if `OCR` was there, `draft`; they get `status`, `markdown`,
    `parsed`, `of` and `aside` (see `stages`). Batches that are under way at once in an
    actor share the rounds of its engine, whatever their documents. A batch of one page ends with
    its page; give an actor several of them with `ray.data.ActorPoolStrategy(size=...,
    max_tasks_in_flight_per_actor=8, max_concurrent_calls_per_actor=8)`. What goes wrong with a page
    is a row with status FAILED. Where the accelerator fails, the process ends, and Ray starts
    another one.

    Args:
        model: hub id or folder; `None` takes the drafts as they are (status DRAFT).
        settings: how.
        intake: how pages are read, as for `OCR`.
        pages_in_flight: pages under way at once.
        device, dtype, trust_remote_code: as `load_parser`.
        threads: of torch on CPUs; by default torch's.
        attempts: where it is recorded that a page was begun, so that one that kills its process is
            set aside; `None` tries for ever.
        settings_hash: names the page there.
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
        device: str = "auto",
        dtype: str = "auto",
        trust_remote_code: bool = False,
        threads: int | None = None,
        attempts: Attempts | None = None,
        settings_hash: str = "",
        notes_of: Callable[[Path], list[str]] | None = None,
        load: Callable[[], Any] | None = None,
    ) -> None:
        self.read, self.attempts = RowReader(intake or Intake()), attempts
        # A page at which a process died takes all slots: others would be blamed as well.
        self._slots, self._entering = asyncio.Semaphore(SLOTS), asyncio.Lock()
        self.settings_hash, self.notes_of = settings_hash, notes_of
        self._reading = ThreadPoolExecutor(1, "pages")  # pdfium is for one thread
        self._broken: SoonerError | None = None
        try:
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
            SoonerError: the model can't be loaded.
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
        if not is_page(row):
            return _report(row, ParsedPage("", -1))
        began = time.perf_counter()
        name, number = place_of(row).as_posix(), int(row["page"])
        key = page_key(row.get("hash") or name, self.settings_hash, number)
        deaths = 0 if self.attempts is None else await self._off(self.attempts.count, key)
        if self.attempts is not None and deaths >= self.attempts.maximum:
            reason = await self._off(self.attempts.reason, key)
            failure = ParsedPage(name, number, FAILED, f"{reason}; --fresh tries it again")
            return _report(row, failure, is_aside=True)
        async with self._turn(SLOTS if deaths else 1):
            page, parsed = await self._tried(row, key, f"{name}, page {number}")
        if parsed.status != FAILED:
            notes = [] if self.notes_of is None else self.notes_of(Path(row["path"]))
            parsed = replace(parsed, notes=[*getattr(page, "notes", ()), *notes, *parsed.notes])
        seconds = {**parsed.seconds, "e2e": time.perf_counter() - began}
        parsed = replace(parsed, source=name, number=number, seconds=seconds)
        return _report(row, parsed, getattr(page, "of", 0))

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

    async def _tried(self, row: Row, key: str, where: str) -> tuple[Page | BrokenPage, ParsedPage]:
        """Read and parse a page; the attempt is recorded before, and taken away behind it."""
        attempts = self.attempts
        attempt = None if attempts is None else await self._off(attempts.begin, key, where)
        try:
            page, took = await self._off(self._read, row)
            read = float(row.get("read", 0.0)) + took
            text = row.get("draft")
            draft = PageDraft.from_json(json.loads(text)) if text else None
            parsed = await self._parsed(row, page, draft)
            return page, replace(parsed, seconds={"read": read, **parsed.seconds})
        finally:
            if attempts is not None and attempt is not None:
                attempts.end(attempt)

    def _read(self, row: Row) -> tuple[Page | BrokenPage, float]:
        """Returns a row's page, and the seconds that reading it took."""
        began = time.perf_counter()
        return self.read(row), time.perf_counter() - began

    async def _parsed(
        self, row: Row, page: Page | BrokenPage, draft: PageDraft | None
    ) -> ParsedPage:
        """Returns a page's result; an error becomes a result with status FAILED."""
        if isinstance(page, BrokenPage):
            return ParsedPage("", page.number, FAILED, page.reason)
        try:
            parsed = await self.parser.parse(page, draft)
        except SoonerError as error:
            return ParsedPage("", page.number, FAILED, str(error), size=page.size)
        except Exception as error:
            reason = error_line(error)
            if is_device_fault(error):
                logger.error("the device failed at '%s': %s", row["path"], reason)
                os._exit(FAULT)
            return ParsedPage("", page.number, FAILED, reason, size=page.size)
        drafter = {"drafter": draft.seconds if draft is not None else 0.0}
        form = self.parser.ask.form
        return replace(parsed, form=form, seconds={**drafter, **parsed.seconds})

    async def _off(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call what reads files, in the thread for that."""
        return await asyncio.get_running_loop().run_in_executor(self._reading, call, *args)


def _report(row: Row, parsed: ParsedPage, of: int = 0, is_aside: bool = False) -> Row:
    return {
        **{name: value for name, value in row.items() if name not in ("draft", "read")},
        "status": parsed.status,
        "markdown": parsed.markdown,
        "parsed": json.dumps(parsed.to_json()),
        "of": of,
        "aside": is_aside,
    }


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
