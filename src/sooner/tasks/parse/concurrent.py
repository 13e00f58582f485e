"""Many pages under way at once, which share the rounds of one engine: `ConcurrentParser`, the queue
of its requests, and the decoder of each page."""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from ...checks import check_whole
from ...documents import Page, PageDraft
from ...engine.memory import ON_CPUS, free_bytes, gpus_of, manager
from ...engine.request import Request, RequestOptions
from ...engine.scheduler import Engine
from ...engine.stats.run import Stats
from ...errors import SoonerError, is_out_of_memory
from ...methods import HSD, Method
from ...models import adapt
from ..loading import ModelPair
from ..prompting import max_positions
from .decoding import DecodeRequest, DecodeResult, PageDecoder, RowListener, decode_alone
from .parser import PageParser
from .result import ParsedPage
from .settings import ParseSettings

T = TypeVar("T")

PAGES = 16
"""Pages under way by default."""

SHARE = 0.8
"""Share of a GPU that weights, keys and values may take; pictures and forwards need the rest."""

PROMPT = 16384
"""Tokens that a page's prompt is left at most. One with more is decoded alone."""

CROPS = 8
"""Crops of a page that are one request of the engine, prefilled together."""

CLOSED = "the parser was closed before the page came to its end"


class ConcurrentParser:
    """Parses many pages at once over one engine; the text of each is what `PageParser` gives.

    A page is the same coroutine (`PageParser.parse`), which takes turns with others': crops of
    stage 1 and the page of stage 2 are requests of an engine, whose rows join and leave. So rounds
    are shared by pages, and by documents, and nothing waits for the slowest page.

    Where memory is short, the pages that began last make room and go on later; only what runs out
    of memory with nothing beside it is tried with less (`PageParser`). A page's seconds are its
    own: those of its inputs, its prefills, and its share of the rounds, each of which is divided by
    the rows that it decoded. `timeout` and what is learnt of costs go by these.

    Args:
        pair: the model, see `load_parser`.
        settings: how.
        pages_in_flight: pages under way at once; others wait.

    Attributes:
        parser: one page at a time, with the same settings; not to be called meanwhile.
        pages_in_flight: as above.

    Raises:
        SoonerError: as `PageParser`; fewer pages than 1.
    """

    def __init__(
        self,
        pair: ModelPair,
        settings: ParseSettings | None = None,
        *,
        pages_in_flight: int = PAGES,
    ) -> None:
        check_whole("pages_in_flight", pages_in_flight)
        self.parser, self.pages_in_flight = PageParser(pair, settings), pages_in_flight
        settings, model = self.parser.settings, pair.target.model
        rows = pages_in_flight + (0 if settings.stages == "page" else CROPS)
        method = HSD([[]], **settings.verification())
        pages = engine_pages(model, method, rows, PROMPT + settings.max_new_tokens)
        self.engine = Engine(
            model, method, max_rows=rows, pages=pages, prefix_caching=False,
            verify_every=settings.verify_every,
        )  # fmt: skip
        self._queue = EngineQueue(self.engine, set(self.parser.eos))
        self._numbers = itertools.count()
        # Tokenizers and processors are for one thread: all pages' own work is done in this one.
        self._work = ThreadPoolExecutor(1, "pages")
        self._slots: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}  # one a loop

    async def parse(self, page: Page, draft: PageDraft | None = None) -> ParsedPage:
        """Parse a page beside others, once fewer than `pages_in_flight` are under way.

        To cancel it takes the page's rows out of the engine.

        Args:
            page, draft: as `PageParser` takes them, which raises the same.

        Raises:
            SoonerError: the parser is closed.
        """
        if self._queue.is_closed:
            raise SoonerError("the parser is closed; make another one")
        decoder = SharedDecoder(self._queue, self._work, float(next(self._numbers)))
        for loop in [loop for loop in [*self._slots] if loop.is_closed()]:
            self._slots.pop(loop, None)
        loop, slots = asyncio.get_running_loop(), asyncio.Semaphore(self.pages_in_flight)
        async with self._slots.setdefault(loop, slots):
            return await self.parser.parse(page, draft, decoder)

    def close(self) -> None:
        """End all pages that are under way, with an error each, and the threads."""
        self._queue.close()
        self._work.shutdown()

    def __enter__(self) -> ConcurrentParser:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def engine_pages(model: Any, method: Method, rows: int, length: int) -> int:
    """Returns 256-token pages of an engine's memory: what `rows` so long take, or what fits."""
    gpus = gpus_of(model)
    free = sum(free_bytes(gpu, SHARE) for gpu in gpus) if gpus else ON_CPUS
    longest = min(max_positions(model) or length, length) + method.largest_block()
    pages = min(
        free // manager.page_bytes(adapt(model), method), rows * -(-longest // manager.PAGE)
    )
    return max(pages, 1)


def page_parser(
    pair: ModelPair, settings: ParseSettings, pages_in_flight: int | None = None
) -> PageParser | ConcurrentParser:
    """Returns what parses so many pages at once, by default 16 on GPUs and 1 on CPUs; one is
    `PageParser`'s business. Those with a sparse prefill are decoded one at a time anyway.

    Raises:
        SoonerError: as `ConcurrentParser`.
    """
    if pages_in_flight is None:
        is_shared = settings.prefill is None and gpus_of(pair.target.model)
        pages_in_flight = PAGES if is_shared else 1
    if pages_in_flight == 1:
        return PageParser(pair, settings)
    return ConcurrentParser(pair, settings, pages_in_flight=pages_in_flight)


@dataclass(eq=False, kw_only=True)
class PageRequest(Request):
    """A request of the engine for rows of a page, which are prefilled together.

    Attributes:
        listener: of its rows; says what is decoded.
        future: its result, or what went wrong; where it is cancelled, the rows leave the engine.
        alone_seconds: that decoding it by itself took.
    """

    listener: RowListener
    future: Future[DecodeResult] = field(default_factory=Future)
    alone_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """That the engine has spent on it."""
        return self.prefill_seconds + self.round_seconds + self.alone_seconds

    def resolve(self, result: DecodeResult | Exception) -> None:
        with suppress(InvalidStateError):  # it was cancelled
            if isinstance(result, Exception):
                self.future.set_exception(result)
            else:
                self.future.set_result(result)

    def result(self) -> DecodeResult:
        """Returns what its rows generated, once these have ended."""
        accepted, tokens = self.listener.accepted, sum(map(len, self.tokens or []))
        stats = Stats(
            mode=self.mode,
            method=self.method.name,
            rows=self.rows,
            tokens=tokens,
            decode_tokens=tokens - self.rows,
            nfe=max(map(len, accepted)),
            acceptance_histogram=Counter(count for row in accepted for count in row[1:]),
            num_draft_tokens=self.num_draft_tokens,
        )
        stats.seconds |= {"prefill": self.prefill_seconds, "verify": self.round_seconds}
        return DecodeResult(self.listener.finished(), stats)


class EngineQueue:
    """Gives the requests of many pages to one engine and takes its steps, in a thread of its own.

    What can't share rounds is decoded by itself, between two steps: a request with a sparse
    prefill, one too long for the engine's pages, and one for which memory ran out beside others.

    Args:
        engine: used by this thread alone from now on.
        eos: ids that end a text.
    """

    def __init__(self, engine: Engine, eos: set[int]) -> None:
        self.engine, self.eos, self.is_closed = engine, eos, False
        self._arrivals: queue.SimpleQueue[PageRequest | None] = queue.SimpleQueue()
        self._running: set[PageRequest] = set()
        # A daemon: a forward that hangs must not keep the program from ending.
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def put(self, source: DecodeRequest, decoder: SharedDecoder) -> PageRequest:
        """Returns a request of a page, which begins when its turn comes."""
        drafts = [[]] if source.drafts is None else source.drafts
        listener = RowListener(source, self.eos, decoder.clock)
        options = RequestOptions(listener.sampling, on_tokens=listener.record)
        request = PageRequest(
            inputs=source.inputs, options=options, method=HSD(drafts, **source.verification),
            rows=len(source.limits), priority=decoder.priority, listener=listener,
        )  # fmt: skip
        if self.is_closed:  # nobody receives it
            request.resolve(SoonerError(CLOSED))
        self._arrivals.put(request)
        return request

    def close(self) -> None:
        """End all requests, with an error each, and the thread."""
        self.is_closed = True
        self._arrivals.put(None)
        self._thread.join()

    def _run(self) -> None:
        """Take in what was put, and out what was cancelled; waits where there is nothing to do."""
        while True:
            while not self._running or not self._arrivals.empty():
                request = self._arrivals.get()
                if request is None:
                    self._fail(SoonerError(CLOSED))
                    return
                self._begin(request)
            for request in [request for request in self._running if request.future.cancelled()]:
                self._running.remove(request)
                self.engine.cancel(request)
            try:
                for ended in self.engine.step():
                    self._end(ended)
            except Exception as error:  # of the engine itself: all that it holds ends with it
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        for request in self._running:
            request.resolve(error)
        self._running.clear()
        self.engine.close()

    def _begin(self, request: PageRequest, may_share: bool = True) -> None:
        source = request.listener.request
        try:
            if self.is_closed:
                raise SoonerError(CLOSED)
            if may_share and self._may_share(source):
                self.engine.add(request)
                self._running.add(request)
            elif not request.future.cancelled():
                result = decode_alone(source, self.engine.model, self.eos)
                request.alone_seconds = result.stats.total_seconds
                request.resolve(result)
        except Exception as error:
            request.resolve(error)

    def _may_share(self, source: DecodeRequest) -> bool:
        if source.prefill is not None or self.engine.longest is None:
            return source.prefill is None
        rows, width = source.inputs["input_ids"].shape
        length = width + max(source.limits)
        needed = rows * -(-(length + self.engine.method.largest_block()) // manager.PAGE)
        return length <= self.engine.longest and needed <= self.engine.pages

    def _end(self, request: Any) -> None:
        """The rows of a request have left the engine."""
        if request not in self._running:
            return
        self._running.remove(request)
        if request.error is not None and is_out_of_memory(request.error):
            self._begin(request, may_share=False)  # others may have been what was too much
        else:
            request.resolve(request.error or request.result())


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
        self._work, self._requests = work, list[PageRequest]()

    def clock(self) -> float:
        return self.own_seconds + sum(request.seconds for request in self._requests)

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        timed = partial(self._timed, function, *args)
        return await asyncio.get_running_loop().run_in_executor(self._work, timed)

    async def decode(self, requests: Sequence[DecodeRequest]) -> list[DecodeResult]:
        entries = [self.queue.put(request, self) for request in requests]
        self._requests += entries
        futures = [asyncio.wrap_future(entry.future) for entry in entries]
        try:
            return await asyncio.gather(*futures)
        except Exception:
            for future in futures:  # the others leave the engine with the first that failed
                future.cancel()
            raise
