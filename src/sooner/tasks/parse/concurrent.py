"""`ConcurrentParser`: many pages under way at once, which share the rounds of one engine."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from ...checks import check_whole
from ...documents import Page, PageDraft
from ...engine.memory import manager
from ...engine.memory.free_memory import ON_CPUS, free_bytes, gpus_of
from ...engine.request import Request
from ...engine.scheduler import Engine
from ...engine.stats.run import Stats
from ...errors import SoonerError, is_out_of_memory
from ...methods import HSD, Autoregressive, Method
from ...methods.aligned import Experience
from ...models import adapt
from ..loading import ModelPair
from ..prompting import max_positions
from .decoding import DecodeRequest, DecodeResult, PageDecoder, RowListener, decode_alone
from .parser import PageParser
from .result import Late, ParsedPage
from .settings import ParseSettings

T = TypeVar("T")

MAX_PAGES = 16
"""Pages under way unless more are asked for."""

CROPS = 8
"""Crops of a page that are one request of the engine, prefilled together."""

SHARE = 0.8
"""The share of a GPU that weights, keys and values may take; pictures and forwards need the
rest.
"""

TYPICAL = 4096
"""Tokens of a page, prompt and text, of which a default goes out. Where pages take more, the last
ones make room and are prefilled again later."""

PROMPT = 16384
"""Tokens that a page's prompt is left at most. One with more is decoded alone."""

CLOSED = "the parser was closed before the page came to its end"


class ConcurrentParser:
    """Parses many pages at once over one engine; the text of each is what `PageParser` gives.

    A page is the same coroutine (`PageParser.parse`), which takes turns with others': crops of
    stage 1 and the page of stage 2 are requests of an engine, whose rows join and leave. So rounds
    are shared by pages, and by documents, and nothing waits for the slowest page. A page's draft is
    waited for before the page is prefilled, in a thread of its own, and nothing waits for that but
    the page. A sparse prefill works on the model's own layers, so that pages with one are decoded
    one at a time.

    Where memory is short, the pages that began last make room and go on later; only what runs out
    of memory with nothing beside it is tried with less (`PageParser`). A page's seconds are its
    own: those of its inputs, its prefills, and its share of the rounds, each of which is divided by
    the rows that it decoded. `timeout`, the budget of stage 1 and what is learnt of costs go by
    these.

    Args:
        pair: the model, see `load_parser`.
        settings: how.
        pages_in_flight: pages under way at once; by default as many as memory suffices for, see
            `engine_room`. More may be submitted: they wait.
        has_drafts: pages come with drafts. Without, rows are decoded plainly.
        engine: to be used in place of one of its own; made by `Engine(model, method, ...)`.

    Attributes:
        parser: one page at a time, with the same settings; not to be called meanwhile.
        pages_in_flight: as above.

    Raises:
        SoonerError: as `PageParser`; there is no memory for a page.
    """

    def __init__(
        self,
        pair: ModelPair,
        settings: ParseSettings | None = None,
        *,
        pages_in_flight: int | None = None,
        has_drafts: bool = True,
        engine: Engine | None = None,
    ) -> None:
        self.parser = PageParser(pair, settings)
        self.ask, self.settings = self.parser.ask, self.parser.settings
        self.has_drafts = has_drafts
        model = pair.target.model
        method = _method(self.settings, has_drafts, self.parser.experience)
        room = engine_room(model, method, self.settings, pages_in_flight)
        self.pages_in_flight = room.pages_in_flight
        self.engine = engine or Engine(
            model, method, max_rows=room.rows, pages=room.pages, prefix_caching=False
        )
        self._queue = EngineQueue(self.engine, method, set(self.parser.eos))
        self._numbers = itertools.count()
        self._is_closed = False
        # Tokenizers and processors are for one thread: all pages' own work is done in this one.
        self._work = ThreadPoolExecutor(1, "pages")
        self._loop = asyncio.new_event_loop()
        self._slots = asyncio.Semaphore(self.pages_in_flight)
        # A daemon: a forward that hangs must not keep the program from ending.
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._queue.run(), self._loop)

    def submit(self, page: Page, draft: PageDraft | Late | None = None) -> Future[ParsedPage]:
        """Begin a page; for callers without an event loop.

        Args:
            page, draft: as `PageParser` takes them. A function that waits for the draft is called
                in a thread of its own.

        Returns:
            What will hold the page, or what `PageParser` would have raised. To cancel it takes the
            page's rows out of the engine.

        Raises:
            SoonerError: the parser is closed, or was made for pages without drafts.
        """
        if self._is_closed:
            raise SoonerError("the parser is closed; make another one")
        if draft is not None and not self.has_drafts:
            raise SoonerError("a page has a draft, but the parser was made with has_drafts=False")
        page_run = self._parse(page, draft, next(self._numbers))
        return asyncio.run_coroutine_threadsafe(page_run, self._loop)

    async def _parse(self, page: Page, draft: PageDraft | Late | None, number: int) -> ParsedPage:
        """Parse a page, once fewer than `pages_in_flight` are under way."""
        try:
            async with self._slots:
                decoder = SharedDecoder(self._queue, self._work, float(number))
                return await self.parser.parse(page, draft, decoder)
        except asyncio.CancelledError:
            if self._is_closed:
                raise SoonerError(CLOSED) from None
            raise

    async def parse(self, page: Page, draft: PageDraft | Late | None = None) -> ParsedPage:
        """Parse a page beside others; as a call of `PageParser`, which raises the same."""
        return await asyncio.wrap_future(self.submit(page, draft))

    def close(self) -> None:
        """End all pages that are under way, with an error each, and the threads."""
        if self._is_closed:
            return
        self._is_closed = True
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._work.shutdown()

    async def _end(self) -> None:
        """End the pages that are still under way, and the engine's turns."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.engine.close()

    def __enter__(self) -> ConcurrentParser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(eq=False)
class QueuedRequest:
    """Holds a request of a page until its rows have left the engine.

    Attributes:
        request: of several rows, if these are to be prefilled together.
        decoder: of the page.
        future: its result, or what went wrong.
        listener, rows: while it is in the engine.
        is_alone: it is decoded with nothing beside it.
        seconds_before: that the engine spent on it before it was begun anew.
    """

    request: DecodeRequest
    decoder: SharedDecoder
    future: asyncio.Future[DecodeResult]
    listener: RowListener | None = None
    rows: Request | None = None
    is_alone: bool = False
    seconds_before: float = 0.0

    @property
    def seconds(self) -> float:
        """That the engine has spent on it."""
        rows = self.rows
        spent = 0.0 if rows is None else rows.prefill_seconds + rows.round_seconds
        return self.seconds_before + spent

    def finish(self, result: DecodeResult | Exception) -> None:
        if self.future.done():  # it was cancelled
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)

    def result(self) -> DecodeResult:
        """Returns what its rows generated, once these have ended."""
        rows, listener = self.rows, self.listener
        assert rows is not None
        assert rows.tokens is not None
        assert listener is not None
        tokens = sum(map(len, rows.tokens))
        stats = Stats(
            mode=rows.mode,
            method=rows.method.name,
            rows=rows.rows,
            tokens=tokens,
            decode_tokens=tokens - rows.rows,
            nfe=max(map(len, listener.accepted)),
            acceptance_histogram=Counter(
                count for accepted in listener.accepted for count in accepted[1:]
            ),
            num_draft_tokens=rows.num_draft_tokens,
        )
        stats.seconds["prefill"] = rows.prefill_seconds
        stats.seconds["verify"] = rows.round_seconds
        return DecodeResult(listener.finished(), stats)


class EngineQueue:
    """Gives the requests of many pages to one engine and takes its steps, all in one event loop.

    What can't share rounds is decoded with nothing beside it, once all that was begun before has
    ended: a request with a sparse prefill, one that is longer than the engine has pages for, and
    one for which memory ran out beside others.

    Args:
        engine: used by the loop's thread alone from now on.
        method: how its rows are decoded; requests that come without drafts join them, too.
        eos: ids that end a text.
    """

    def __init__(self, engine: Engine, method: Method, eos: set[int]) -> None:
        self.engine, self.method, self.eos = engine, method, eos
        self._waiting: deque[QueuedRequest] = deque()  # not begun, in order
        self._running: dict[Request, QueuedRequest] = {}
        self._has_work = asyncio.Event()

    async def decode(self, entry: QueuedRequest) -> DecodeResult:
        """Returns the result of a request; where it is cancelled, it leaves the engine.

        Raises:
            Exception: what went wrong with it.
        """
        self._waiting.append(entry)
        self._has_work.set()
        try:
            return await entry.future
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
            if entry.rows is not None and self._running.pop(entry.rows, None) is not None:
                self.engine.cancel(entry.rows)
            raise

    async def run(self) -> None:
        """Take steps of the engine as long as there is anything to do; ends with the loop."""
        while True:
            await self._has_work.wait()
            try:
                self._begin()
                if not self.engine.is_idle:
                    for request in self.engine.step():
                        self._end(request)
            except Exception as error:  # of the engine itself: all that it holds ends with it
                for entry in self._running.values():
                    entry.finish(error)
                self._running.clear()
                self.engine.close()
            if self.engine.is_idle and not self._waiting:
                self._has_work.clear()
            await asyncio.sleep(0)  # pages have their turn

    def _begin(self) -> None:
        """Give the engine what waits, up to what has to be decoded alone."""
        while self._waiting:
            entry = self._waiting[0]
            is_alone = entry.is_alone or not self._may_share(entry.request)
            if is_alone and self._running:
                return
            self._waiting.popleft()
            try:
                if is_alone:
                    result = decode_alone(entry.request, self.engine.model, self.eos)
                    entry.seconds_before += result.stats.total_seconds
                    entry.finish(result)
                    return
                self._add(entry)
            except Exception as error:
                entry.finish(error)

    def _may_share(self, request: DecodeRequest) -> bool:
        if request.prefill is not None or self.engine.longest is None:
            return request.prefill is None
        rows, width = request.inputs["input_ids"].shape
        length = width + max(request.limits)
        needed = rows * -(-(length + self.method.largest_block()) // manager.PAGE)
        return length <= self.engine.longest and needed <= self.engine.pages

    def _add(self, entry: QueuedRequest) -> None:
        request, method = entry.request, self.method
        if isinstance(method, HSD):  # of such a kind that its row may join others
            drafts = [[]] if request.drafts is None else request.drafts
            method = HSD(drafts, **request.verification)
        entry.listener = listener = RowListener(
            request.limits, request.repetition, self.eos, request.seconds, request.budget,
            entry.decoder.clock,
        )  # fmt: skip
        entry.rows = self.engine.add_request(
            request.inputs, method=method, priority=entry.decoder.priority, **listener.options
        )
        self._running[entry.rows] = entry

    def _end(self, rows: Request) -> None:
        """The rows of a request have left the engine."""
        entry = self._running.pop(rows, None)
        if entry is None:
            return
        error = rows.error
        if error is not None and is_out_of_memory(error):
            entry.seconds_before, entry.rows = entry.seconds, None
            entry.is_alone = True  # others may have been what was too much
            self._waiting.appendleft(entry)
        else:
            entry.finish(entry.result() if error is None else error)


class SharedDecoder(PageDecoder):
    """Decodes what one page asks for beside others.

    A page's seconds are its share of what the engine did, and its own work.

    Args:
        queue: of all pages.
        work: the thread of pages' own work.
        priority: of the page; those with less of it go first.
    """

    max_rows = CROPS

    def __init__(self, queue: EngineQueue, work: ThreadPoolExecutor, priority: float) -> None:
        super().__init__(queue.engine.model, queue.eos)
        self.queue, self.priority = queue, priority
        self._work, self._spent = work, 0.0
        self._requests: list[QueuedRequest] = []

    def clock(self) -> float:
        return self._spent + sum(entry.seconds for entry in self._requests)

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        def timed() -> T:
            began = time.perf_counter()
            try:
                return function(*args)
            finally:
                self._spent += time.perf_counter() - began

        return await asyncio.get_running_loop().run_in_executor(self._work, timed)

    async def decode(self, requests: Sequence[DecodeRequest]) -> list[DecodeResult]:
        loop = asyncio.get_running_loop()
        entries = [QueuedRequest(request, self, loop.create_future()) for request in requests]
        self._requests += entries
        tasks = [asyncio.ensure_future(self.queue.decode(entry)) for entry in entries]
        try:
            return await asyncio.gather(*tasks)
        except Exception:
            for task in tasks:  # the others leave the engine with the first that failed
                task.cancel()
            raise

    async def wait(self, late: Late) -> PageDraft | None:
        """Wait for the page's draft in a thread of its own."""
        return await asyncio.wrap_future(in_thread(late, "draft"))


def in_thread(call: Callable[[], T], name: str) -> Future[T]:
    """Call a function in a daemon thread: one that hangs must not keep the program from ending."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            # What is no `Exception`, such as the end of a program, would end the event loop.
            is_usual = isinstance(error, Exception)
            if future.set_running_or_notify_cancel():
                future.set_exception(error if is_usual else SoonerError(f"{name}: {error!r}"))
            return
        if future.set_running_or_notify_cancel():
            future.set_result(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


@dataclass(frozen=True)
class EngineRoom:
    """What an engine of several pages is made of.

    Attributes:
        pages_in_flight: documents' pages that are under way at once.
        rows: that decode together, crops of stage 1 among them.
        pages: of its memory, each of 256 tokens.
    """

    pages_in_flight: int
    rows: int
    pages: int


def engine_room(
    model: Any, method: Method, settings: ParseSettings, requested: int | None = None
) -> EngineRoom:
    """Returns the room for so many pages at once.

    Args:
        model: loaded.
        method: of the engine.
        settings: of the pages.
        requested: how many; `None` is as many as a GPU has memory for, 16 at most, and 1 elsewhere.

    Raises:
        SoonerError: fewer than 1, or no memory for a single page.
    """
    adapter, block = adapt(model), method.largest_block()
    length = PROMPT + settings.max_new_tokens
    longest = min(max_positions(model) or length, length)
    each = -(-(longest + block) // manager.PAGE)
    typical = min(each, -(-(TYPICAL + block) // manager.PAGE))
    page_bytes = manager.page_bytes(adapter, method)
    gpus = gpus_of(model)
    free = sum(free_bytes(gpu, SHARE) for gpu in gpus) if gpus else ON_CPUS
    pages = max(free, 0) // page_bytes
    if requested is None:
        requested = min(max(pages // typical, 1), MAX_PAGES) if gpus else 1
    check_whole("pages_in_flight", requested)
    if pages < typical:
        raise SoonerError(
            f"the memory for keys and values is {pages} pages of {manager.PAGE} tokens "
            f"({page_bytes} bytes each), and a document's page takes {typical}; parse one at a "
            "time (--pages-in-flight 1), or use a smaller model"
        )
    rows = requested + (0 if settings.stages == "page" else CROPS)
    return EngineRoom(requested, rows, min(pages, rows * each))


def page_parser(
    pair: ModelPair,
    settings: ParseSettings,
    pages_in_flight: int | None = None,
    has_drafts: bool = True,
) -> PageParser | ConcurrentParser:
    """Returns what parses so many pages at once; see `ConcurrentParser`. One is `PageParser`'s
    business.

    Raises:
        SoonerError: as those; fewer pages than 1.
    """
    if pages_in_flight is None and settings.prefill is not None:
        pages_in_flight = 1  # such pages are decoded one at a time anyway
    if pages_in_flight is None:
        method = _method(settings, has_drafts)
        pages_in_flight = engine_room(pair.target.model, method, settings).pages_in_flight
    check_whole("pages_in_flight", pages_in_flight)
    if pages_in_flight == 1:
        return PageParser(pair, settings)
    return ConcurrentParser(pair, settings, pages_in_flight=pages_in_flight, has_drafts=has_drafts)


def _method(
    settings: ParseSettings, has_drafts: bool, experience: Experience | None = None
) -> Method:
    """Returns the method of an engine whose requests bring their drafts."""
    if not has_drafts:
        return Autoregressive()
    shared = experience if settings.acceptance_threshold == 1 else None
    return HSD([[]], **settings.verification, experience=shared)
