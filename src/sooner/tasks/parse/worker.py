"""`PageWorker`: the way of a page from its document to its files, many of them in one event loop.

A page is read and drafted in a thread, parsed, and written with an attempt recorded around all of
it, so that a page that kills its process leaves a trace. `ParseJob` gives a worker the pages of its
documents, `sooner.ray.Parser` those of the rows that Ray hands to an actor.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ...documents import BrokenPage, Document, Page, PageDraft, PageRange, fetched
from ...documents.drafters import PageDrafter
from ...errors import SoonerError, is_device_fault
from ...storage import StorageError
from .delivery import Line, PageTask, document_at
from .output import DocumentWork, Intake, ParseOutput, reason_of
from .result import FAILED, ParsedPage

T = TypeVar("T")

PreparedPage = tuple[Page | BrokenPage, PageDraft | None, float]
"""A page, its draft, and the seconds that reading it took."""

FETCHED = 2
"""Documents behind URLs that are kept while their pages are read: the next one is planned while
the last pages of the one before it are still to be read."""


class DeviceFaultError(SoonerError):
    """The accelerator failed, so that every further page would fail in this process."""


class PageReader:
    """Reads pages of documents, one at a time: pdfium is for one thread.

    A document stays open behind a page, since the next one is mostly of it, too.

    Args:
        intake: how pages are read.
    """

    def __init__(self, intake: Intake) -> None:
        self.intake, self.lock = intake, threading.Lock()
        self._fetched: OrderedDict[str, tuple[Document, ExitStack]] = OrderedDict()
        self._pages: Iterator[Page | BrokenPage] = iter(())
        self._following: tuple[str, int] | None = None  # what `_pages` yields next

    def page(self, task: PageTask) -> Page | BrokenPage:
        """Returns a page.

        Raises:
            SoonerError: what reads such files is not installed.
        """
        with self.lock:
            document, number = self.document(document_at(task.path, Path(task.place))), task.number
            if self._following != (task.path, number):
                self._pages = self.intake.read(document, PageRange(((number, None),)))
            self._following = None
            for page in self._pages:
                if page.number == number:
                    self._following = (task.path, number + 1)
                    return page
                if isinstance(page, BrokenPage):  # the document as a whole
                    return BrokenPage(document.path, number, page.reason)
        reason = "is not there any more; the file changed meanwhile"
        return BrokenPage(document.path, number, reason)

    def planned(self, output: ParseOutput, document: Document) -> DocumentWork:
        """Returns what is to be done of a document; raises as `ParseOutput.plan`."""
        with self.lock:
            return output.plan(self.document(document))

    def document(self, document: Document) -> Document:
        """Returns a document as a file of this machine; the caller has the lock."""
        if document.url is None:
            return document
        if document.url not in self._fetched:
            while len(self._fetched) >= FETCHED:
                self._fetched.popitem(last=False)[1][1].close()
            stack = ExitStack()
            self._fetched[document.url] = stack.enter_context(fetched(document)), stack
        return self._fetched[document.url][0]

    def close(self) -> None:
        """Close what is open, and remove the files that were fetched."""
        with self.lock:
            self._pages, self._following = iter(()), None
            while self._fetched:
                self._fetched.popitem()[1][1].close()


class PageWorker:
    """Takes pages from their documents to their files.

    As many pages are parsed at once as the parser takes, and `workers` are read and drafted ahead.
    Pages begin in the order in which they come. A page at which a process died before has the
    worker for itself: others would be blamed for it as well.

    Args:
        intake: how pages are read.
        load: makes the parser when the first page needs it: it is called with a page and its draft,
            or has an async `parse`, `pages_in_flight` and `close`, as `ConcurrentParser`.
        drafter: drafts pages, or `None`. Its errors fail the page, if it is not `GuardedDrafter`.
        workers: pages that are read and drafted at a time, and ahead; 0 drafts each in its turn.
        output: takes the pages; `None` for a worker whose pages are only `parsed`.

    Attributes:
        capacity: pages under way at once; grows by what the parser takes when it is `loaded`.
    """

    def __init__(
        self, intake: Intake, load: Callable[[], Any], drafter: PageDrafter | None = None, *,
        workers: int = 1, output: ParseOutput | None = None,
    ) -> None:  # fmt: skip
        self.reader = PageReader(intake)
        self.drafter, self.output = drafter, output
        self.debug = output is not None and output.debug
        self.capacity, self.loaded = workers + 1, asyncio.Event()
        self._load = load
        self._parser: Any = None
        self._reading, self._parsing = asyncio.Semaphore(max(workers, 1)), asyncio.Semaphore(1)
        self._slots, self._entering = asyncio.Semaphore(self.capacity), asyncio.Lock()
        self._storing = ThreadPoolExecutor(1, "store")
        self._attempts: set[str] = set()

    async def written(self, task: PageTask) -> Line:
        """Returns the line of a page that was parsed and written; what goes wrong with it is a
        result with status FAILED. One at which too many processes died is set aside.

        Raises:
            DeviceFaultError: the accelerator failed.
            SoonerError: the parser can't be loaded, what reads such files is not installed, or
                nothing more can be written.
        """
        output = self.output
        assert output is not None
        deaths = await self.store(output.deaths.count, task.key)
        if deaths >= output.attempts:
            # Said here, since another process may set it aside, and forget the attempts, meanwhile.
            failed = ParsedPage(task.place, task.number, FAILED, output.set_aside, set_aside=True)
            line = await self.store(output.keep, task, None, failed)
        else:
            if deaths:
                self._loaded()  # before all slots are held: it brings more of them
            turn, attempt = self._turn(alone=deaths > 0), self._attempt(task, output)
            async with turn, attempt, self._parsed(task) as (page, parsed):
                line = await self.store(output.keep, task, page, parsed)
        if deaths and (line["set_aside"] or line["status"] != FAILED):
            await self.store(output.deaths.forget, task.key)
        return line

    @asynccontextmanager
    async def _attempt(self, task: PageTask, output: ParseOutput) -> AsyncIterator[None]:
        """Record an attempt at a page, which ends behind the block."""
        attempt = await self.store(self._begin, output, task)
        try:
            yield
        except DeviceFaultError:
            self._attempts.discard(attempt)  # it stays: the process ends as one that died at it
            raise
        finally:
            self._end(output, attempt)

    def _begin(self, output: ParseOutput, task: PageTask) -> str:
        """Record an attempt, and that it is open: who awaits this may be cancelled meanwhile."""
        attempt = output.deaths.begin(task.key, f"{task.place}, page {task.number}")
        self._attempts.add(attempt)
        return attempt

    def _end(self, output: ParseOutput, attempt: str) -> None:
        if attempt in self._attempts:
            self._attempts.remove(attempt)
            output.deaths.end(attempt)

    async def parsed(self, task: PageTask) -> ParsedPage:
        """Returns a page's result, and writes nothing; raises as `written`."""
        async with self._turn(), self._parsed(task) as (_, parsed):
            return parsed

    @asynccontextmanager
    async def _turn(self, alone: bool = False) -> AsyncIterator[None]:
        """Hold a slot, or all of them; who comes later waits for those who wait."""
        acquired = 0
        try:
            async with self._entering:
                while acquired < (self.capacity if alone else 1):
                    await self._slots.acquire()
                    acquired += 1
            yield
        finally:
            for _ in range(acquired):
                self._slots.release()

    async def store(self, call: Callable[..., T], *args: Any) -> T:
        """Returns what a function returns that waits for the store of the results."""
        return await asyncio.get_running_loop().run_in_executor(self._storing, call, *args)

    def close(self) -> None:
        """Take back what is under way, once nothing is awaited any more: nobody died at it."""
        self._storing.shutdown()
        for attempt in [*self._attempts]:
            assert self.output is not None
            with suppress(StorageError):  # it ends with this process
                self._end(self.output, attempt)
        getattr(self._parser, "close", lambda: None)()
        self.reader.close()

    @asynccontextmanager
    async def _parsed(self, task: PageTask) -> AsyncIterator[tuple[Page | None, ParsedPage]]:
        """A page, `None` if unreadable, and its result; the next page begins behind the block."""
        preparing = asyncio.ensure_future(self._prepared(task))
        try:
            async with self._parsing:
                began = time.perf_counter()
                page, draft, read_seconds = await preparing
                waited = time.perf_counter() - began
                if isinstance(page, BrokenPage):
                    yield None, ParsedPage(task.place, task.number, FAILED, page.reason)
                    return
                parsed = await self._result(page, draft, task)
                seconds = {"read": read_seconds, "wait": waited, **parsed.seconds}
                seconds["e2e"] = time.perf_counter() - began
                yield page, replace(parsed, seconds=seconds)
        finally:
            preparing.cancel()

    async def _prepared(self, task: PageTask) -> PreparedPage:
        """A page as it was read and drafted."""
        async with self._reading:
            return await in_thread(self._read_and_draft, task)

    def _read_and_draft(self, task: PageTask) -> PreparedPage:
        began = time.perf_counter()
        try:
            page = self.reader.page(task)
            took = time.perf_counter() - began
            if self.drafter is None or isinstance(page, BrokenPage):
                return page, None, took
            return page, self.drafter(page), took
        except Exception as error:
            reason = reason_of(error, self.debug)
            return BrokenPage(Path(task.path), task.number, reason), None, 0.0

    async def _result(self, page: Page, draft: PageDraft | None, task: PageTask) -> ParsedPage:
        """Returns what the parser makes of a page, with what is known of it besides."""
        parser = self._loaded()
        parse = parser.parse if hasattr(parser, "pages_in_flight") else partial(in_thread, parser)
        try:
            parsed = await parse(page, draft)
        except SoonerError as error:
            return ParsedPage(task.place, task.number, FAILED, str(error), size=page.size)
        except Exception as error:
            reason = reason_of(error, self.debug)
            if is_device_fault(error):
                raise DeviceFaultError(
                    f"the device failed at '{task.path}', page {task.number}: {reason}; what is "
                    "finished is kept, the same command goes on there"
                ) from error
            return ParsedPage(task.place, task.number, FAILED, reason, size=page.size)
        return replace(parsed, source=task.place, notes=[*page.notes, *parsed.notes])

    def _loaded(self) -> Any:
        """Returns the parser; as many pages more are under way as it takes."""
        if self._parser is None:
            self._parser = self._load()
            more = getattr(self._parser, "pages_in_flight", 1) - 1
            self.capacity += more
            self.loaded.set()
            for _ in range(more):
                self._parsing.release()
                self._slots.release()
        return self._parser


def in_thread(call: Callable[..., T], *args: Any) -> asyncio.Future[T]:
    """Call a function in a daemon thread: one that hangs must not keep the program from ending."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            finish = partial(future.set_result, call(*args))
        except BaseException as error:
            finish = partial(future.set_exception, error)
        with suppress(InvalidStateError):  # it was cancelled
            finish()

    threading.Thread(target=run, daemon=True).start()
    return asyncio.wrap_future(future)
