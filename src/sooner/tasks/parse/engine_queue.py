"""The requests of many pages to one engine, in its own thread, and the decoder of each page."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ...engine.memory.manager import PAGE
from ...engine.request import Request, RequestOptions
from ...engine.scheduler import Engine
from ...engine.stats.run import Stats
from ...errors import SoonerError, is_out_of_memory
from ...methods import HSD, Method
from .decoding import DecodeRequest, DecodeResult, PageDecoder, RowListener, decode_alone

T = TypeVar("T")

CROPS = 8
"""Crops of a page that are one request of the engine, prefilled together."""

CLOSED = "the parser was closed before the page came to its end"


@dataclass(eq=False, kw_only=True)
class PageRequest(Request):
    """A request of the engine for rows of a page, which are prefilled together.

    Attributes:
        source: what is decoded.
        listener: of its rows.
        future: its result, or what went wrong; where it is cancelled, the rows leave the engine.
        is_alone: it is decoded with nothing beside it.
        alone_seconds: that this took.
    """

    source: DecodeRequest
    listener: RowListener
    future: Future[DecodeResult] = field(default_factory=Future)
    is_alone: bool = False
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

    What can't share rounds is decoded with nothing beside it, once all that was begun before has
    ended: a request with a sparse prefill, one that is longer than the engine has pages for, and
    one for which memory ran out beside others.

    Args:
        engine: used by this thread alone from now on.
        method: how its rows are decoded; requests that come without drafts join them, too.
        eos: ids that end a text.
    """

    def __init__(self, engine: Engine, method: Method, eos: set[int]) -> None:
        self.engine, self.method, self.eos = engine, method, eos
        self._arrivals: queue.SimpleQueue[PageRequest | None] = queue.SimpleQueue()
        self._waiting: deque[PageRequest] = deque()  # not begun, in order
        self._running: set[PageRequest] = set()
        self._is_closed = False
        # A daemon: a forward that hangs must not keep the program from ending.
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def put(self, source: DecodeRequest, decoder: SharedDecoder) -> PageRequest:
        """Returns a request of a page, which begins when its turn comes."""
        method = self.method
        if isinstance(method, HSD):  # of such a kind that its row may join others
            drafts = [[]] if source.drafts is None else source.drafts
            method = HSD(drafts, **source.verification)
        listener = RowListener(source, self.eos, decoder.clock)
        options = RequestOptions(listener.sampling, on_tokens=listener.record)
        request = PageRequest(
            inputs=source.inputs, options=options, method=method, rows=len(source.limits),
            priority=decoder.priority, source=source, listener=listener,
        )  # fmt: skip
        if self._is_closed:
            request.resolve(SoonerError(CLOSED))
        self._arrivals.put(request)
        return request

    def close(self) -> None:
        """End all requests, with an error each, and the thread."""
        self._is_closed = True
        self._arrivals.put(None)
        self._thread.join()

    def _run(self) -> None:
        while self._receive():
            try:
                self._begin()
                if not self.engine.is_idle:
                    for request in self.engine.step():
                        self._end(request)
            except Exception as error:  # of the engine itself: all that it holds ends with it
                self._fail(self._running, error)
        self._fail([*self._waiting, *self._running], SoonerError(CLOSED))

    def _fail(self, requests: Iterable[PageRequest], error: Exception) -> None:
        for request in requests:
            request.resolve(error)
        self._running.clear()
        self.engine.close()

    def _receive(self) -> bool:
        """Take in what was put, and out what was cancelled; waits where there is nothing to do.

        Returns:
            Whether the queue is still open.
        """
        while not (self._waiting or self._running) or not self._arrivals.empty():
            request = self._arrivals.get()
            if request is None:
                return False
            self._waiting.append(request)
        for request in [request for request in self._running if request.future.cancelled()]:
            self._running.remove(request)
            self.engine.cancel(request)
        return True

    def _begin(self) -> None:
        """Give the engine what waits, up to what has to be decoded alone."""
        while self._waiting:
            request = self._waiting[0]
            is_alone = request.is_alone or not self._may_share(request.source)
            if is_alone and self._running:
                return
            self._waiting.popleft()
            try:
                if request.future.cancelled():
                    continue
                if is_alone:
                    result = decode_alone(request.source, self.engine.model, self.eos)
                    request.alone_seconds = result.stats.total_seconds
                    request.resolve(result)
                    return
                self.engine.add(request)
                self._running.add(request)
            except Exception as error:
                request.resolve(error)

    def _may_share(self, source: DecodeRequest) -> bool:
        if source.prefill is not None or self.engine.longest is None:
            return source.prefill is None
        rows, width = source.inputs["input_ids"].shape
        length = width + max(source.limits)
        needed = rows * -(-(length + self.method.largest_block()) // PAGE)
        return length <= self.engine.longest and needed <= self.engine.pages

    def _end(self, request: Any) -> None:
        """The rows of a request have left the engine."""
        if request not in self._running:
            return
        self._running.remove(request)
        if request.error is not None and is_out_of_memory(request.error):
            request.is_alone = True  # others may have been what was too much
            self._waiting.appendleft(request)
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
        self._work, self._spent = work, 0.0
        self._requests: list[PageRequest] = []

    def clock(self) -> float:
        return self._spent + sum(request.seconds for request in self._requests)

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        def timed() -> T:
            began = time.perf_counter()
            try:
                return function(*args)
            finally:
                self._spent += time.perf_counter() - began

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
