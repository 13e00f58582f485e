"""`ConcurrentParser`: many pages under way at once, which share the rounds of one engine."""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from types import TracebackType
from typing import Any, TypeAlias

from ...checks import check_whole
from ...documents import Page, PageDraft
from ...engine.scheduler import Engine
from ...errors import SoonerError
from ...methods import HSD, Autoregressive, Method
from ...methods.aligned import Experience
from ..loading import ModelPair
from .in_flight import CROPS, engine_room
from .parser import PageParser
from .result import FAILED, Late, ParsedPage
from .settings import ParseSettings
from .shared_engine import PageTicket, SharedEngine
from .steps import DecodeResult, StepRequest, Steps, drafts_first

Drafted: TypeAlias = tuple[Page, PageDraft | Late | None]
"""A page, and what drafters say of it."""


class ConcurrentParser:
    """Parses many pages at once over one engine; the text of each is what `PageParser` gives.

    A page goes through the same steps (`PageParser.steps`), taken in turns with others': crops of
    stage 1 and the page of stage 2 are requests of an engine, whose rows join and leave. So rounds
    are shared by pages, and by documents, and nothing waits for the slowest page. A page's draft is
    waited for before the page is prefilled, in a thread of its own, and nothing waits for that but
    the page. A sparse prefill works on the model's own layers, so that pages with one are decoded
    one at a time.

    Where memory is short, the pages that began last make room and go on later; only what runs out
    of memory with nothing beside it is tried with less (`effort.py`). A page's seconds are its
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
        parse_settings, model = self.parser.settings, pair.target.model
        self.has_drafts = has_drafts
        method = _method(parse_settings, has_drafts, self.parser.experience)
        room = engine_room(model, method, parse_settings, pages_in_flight)
        self.pages_in_flight = room.pages_in_flight
        self.engine = engine or Engine(
            model, method, max_rows=room.rows, pages=room.pages, prefix_caching=False
        )
        self._engine = SharedEngine(self.engine, method, set(self.parser.eos))
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._line: list[_PageRun] = []
        self._under_way: set[_PageRun] = set()
        self._numbers = itertools.count()
        self._is_closed = False
        # Tokenizers and processors are for one thread: all pages' own work is done in this one.
        self._thread = threading.Thread(target=self._work, name="pages", daemon=True)
        self._thread.start()

    @property
    def ask(self) -> Any:
        """The target's prompts and output formats."""
        return self.parser.ask

    @property
    def settings(self) -> ParseSettings:
        return self.parser.settings

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
        run = _PageRun(self, page, draft, next(self._numbers))
        self._tasks.put(lambda: self._queue(run))
        return run.future

    async def parse(self, page: Page, draft: PageDraft | Late | None = None) -> ParsedPage:
        """Parse a page beside others; as a call of `PageParser`, which raises the same."""
        return await asyncio.wrap_future(self.submit(page, draft))

    async def run(
        self, pages: Iterable[Page | Drafted] | AsyncIterable[Page | Drafted]
    ) -> AsyncIterator[ParsedPage]:
        """Parse pages, and yield each as it ends; whichever ends first comes first.

        A page that fails is yielded with the status FAILED and the reason; others go on. No more
        pages are taken than are under way.

        Args:
            pages: with their drafts, or without.
        """
        coming, under_way = _async(pages), dict[asyncio.Future[ParsedPage], Page]()
        is_more = True
        try:
            while is_more or under_way:
                while is_more and len(under_way) < self.pages_in_flight:
                    try:
                        item = await anext(coming)
                    except StopAsyncIteration:
                        is_more = False
                        break
                    page, draft = (item, None) if isinstance(item, Page) else item
                    under_way[asyncio.wrap_future(self.submit(page, draft))] = page
                if not under_way:
                    return
                done, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for future in done:
                    yield _result(future, under_way.pop(future))
        finally:
            for future in under_way:
                future.cancel()

    def close(self) -> None:
        """End all pages that are under way, with an error each, and the engine's thread."""
        if self._is_closed:
            return
        self._is_closed = True
        self._engine.close()
        self._tasks.put(None)
        self._thread.join()

    def __enter__(self) -> ConcurrentParser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _work(self) -> None:
        """The pages' own work: inputs, crops, tokens, texts."""
        while (task := self._tasks.get()) is not None:
            task()
        error = SoonerError("the parser was closed before the page came to its end")
        left, self._line = [*self._under_way, *self._line], []
        for run in left:
            run.end(error=error)

    def _queue(self, run: _PageRun) -> None:
        self._line.append(run)
        self._begin()

    def _begin(self) -> None:
        """Begin as many pages as may be under way."""
        while self._line and len(self._under_way) < self.pages_in_flight:
            run = self._line.pop(0)
            if run.future.cancelled():
                run.future.set_running_or_notify_cancel()  # for those who wait for it
                continue
            self._under_way.add(run)
            run.begin()

    def _left(self, run: _PageRun) -> None:
        """A page is no longer under way."""
        if run in self._under_way:
            self._under_way.remove(run)
            self._tasks.put(self._begin)


class _PageRun:
    """A page that is under way; used by the pages' thread alone, but for its clock.

    Attributes:
        future: its result.
    """

    def __init__(
        self, owner: ConcurrentParser, page: Page, draft: PageDraft | Late | None, number: int
    ) -> None:
        self.owner, self.number = owner, number
        self._drafted: Drafted | None = (page, draft)
        self.future: Future[ParsedPage] = Future()
        self._steps: Steps[ParsedPage] | None = None
        self._tickets: list[PageTicket] = []
        self._spent = 0.0  # in the pages' thread
        self._began: float | None = None

    def clock(self) -> float:
        """Returns seconds that were spent on the page: its share of what the engine did, and its
        own.
        """
        began = self._began
        spent = self._spent + (0.0 if began is None else time.perf_counter() - began)
        return spent + sum(ticket.seconds for ticket in self._tickets)

    def begin(self) -> None:
        assert self._drafted is not None
        page, draft = self._drafted
        self._drafted = None  # who keeps the future keeps no picture
        steps = self.owner.parser.steps(page, draft, self.clock, CROPS)
        self._steps = drafts_first(steps)
        self.future.add_done_callback(self._on_done)
        self._go_on(None)

    def end(self, parsed: ParsedPage | None = None, error: BaseException | None = None) -> None:
        """Tell who waits for the page, and let others begin."""
        self._steps = None
        self._tickets.clear()
        try:
            if error is not None:
                self.future.set_exception(error)
            else:
                assert parsed is not None
                self.future.set_result(parsed)
        except InvalidStateError:  # it was cancelled
            pass
        self.owner._left(self)

    def _go_on(self, reply: Any, error: BaseException | None = None) -> None:
        """Take the next step, given what came of the last one."""
        steps = self._steps
        if steps is None:
            return  # it was cancelled meanwhile
        self._began = time.perf_counter()
        try:
            request = steps.send(reply) if error is None else steps.throw(error)
        except StopIteration as ended:
            self.end(ended.value)
            return
        except BaseException as raised:
            self.end(error=raised)
            return
        finally:
            self._spent += time.perf_counter() - self._began
            self._began = None
        self._ask(request)

    def _ask(self, request: StepRequest) -> None:
        if callable(request):
            threading.Thread(target=self._wait, args=(request,), name="draft", daemon=True).start()
            return
        ticket = PageTicket(request, self._done, self.clock, float(self.number))
        self._tickets.append(ticket)
        self.owner._engine.decode(ticket)

    def _wait(self, late: Late) -> None:
        """In a thread of its own, wait for the page's draft."""
        try:
            draft = late()
        except BaseException as error:
            raised = error
            self.owner._tasks.put(lambda: self._go_on(None, raised))
            return
        self.owner._tasks.put(lambda: self._go_on(draft))

    def _done(self, results: list[DecodeResult] | None, error: Exception | None) -> None:
        """In the engine's thread, what came of its requests."""
        self.owner._tasks.put(lambda: self._go_on(results, error))

    def _on_done(self, future: Future[ParsedPage]) -> None:
        """Wherever the future is cancelled, let go of the page."""
        if future.cancelled():
            self.owner._tasks.put(self._cancel)

    def _cancel(self) -> None:
        self.future.set_running_or_notify_cancel()  # for those who wait for it
        if self._steps is not None:
            self._steps.close()
            for ticket in self._tickets:
                self.owner._engine.cancel(ticket)
            self.end(error=SoonerError("the page was cancelled"))


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


def _result(future: asyncio.Future[ParsedPage], page: Page) -> ParsedPage:
    try:
        return future.result()
    except Exception as error:
        is_known = isinstance(error, SoonerError)
        reason = " ".join((str(error) if is_known else f"{type(error).__name__}: {error}").split())
        return ParsedPage(page.source.name, page.number, FAILED, reason[:300], size=page.size)


async def _async(
    pages: Iterable[Page | Drafted] | AsyncIterable[Page | Drafted],
) -> AsyncIterator[Page | Drafted]:
    if isinstance(pages, AsyncIterable):
        async for page in pages:
            yield page
        return
    for page in pages:
        yield page
