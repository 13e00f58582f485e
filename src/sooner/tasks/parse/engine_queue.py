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
from ...engine.request import Request
from ...engine.scheduler import Engine
from ...engine.stats.run import Stats
from ...errors import SoonerError, is_out_of_memory
from ...methods import HSD, Method
from .decoding import DecodeRequest, DecodeResult, PageDecoder, RowListener, decode_alone

T = TypeVar("T")

CROPS = 8
"""Crops of a page that are one request of the engine, prefilled together."""

CLOSED = "the parser was closed before the page came to its end"


@dataclass(eq=False)
class QueuedRequest:
    """Holds a request of a page until its rows have left the engine.

    Attributes:
        request: of several rows, if these are to be prefilled together.
        decoder: of the page.
        future: its result, or what went wrong; where it is cancelled, the rows leave the engine.
        listener, rows: while it is in the engine.
        is_alone: it is decoded with nothing beside it.
        seconds_before: that the engine spent on it before it was begun anew.
    """

    request: DecodeRequest
    decoder: SharedDecoder
    future: Future[DecodeResult] = field(default_factory=Future)
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
        with suppress(InvalidStateError):  # it was cancelled
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
        self._arrivals: queue.SimpleQueue[QueuedRequest | None] = queue.SimpleQueue()
        self._waiting: deque[QueuedRequest] = deque()  # not begun, in order
        self._running: dict[Request, QueuedRequest] = {}
        self._is_closed = False
        # A daemon: a forward that hangs must not keep the program from ending.
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def put(self, entry: QueuedRequest) -> None:
        if self._is_closed:
            entry.finish(SoonerError(CLOSED))
        else:
            self._arrivals.put(entry)

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
                self._fail(self._running.values(), error)
        self._fail([*self._waiting, *self._running.values()], SoonerError(CLOSED))

    def _fail(self, entries: Iterable[QueuedRequest], error: Exception) -> None:
        for entry in entries:
            entry.finish(error)
        self._running.clear()
        self.engine.close()

    def _receive(self) -> bool:
        """Take in what was put, and out what was cancelled; waits where there is nothing to do.

        Returns:
            Whether the queue is still open.
        """
        while not (self._waiting or self._running) or not self._arrivals.empty():
            entry = self._arrivals.get()
            if entry is None:
                return False
            self._waiting.append(entry)
        for rows in [rows for rows, entry in self._running.items() if entry.future.cancelled()]:
            del self._running[rows]
            self.engine.cancel(rows)
        return True

    def _begin(self) -> None:
        """Give the engine what waits, up to what has to be decoded alone."""
        while self._waiting:
            entry = self._waiting[0]
            is_alone = entry.is_alone or not self._may_share(entry.request)
            if is_alone and self._running:
                return
            self._waiting.popleft()
            if entry.future.cancelled():
                continue
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
        needed = rows * -(-(length + self.method.largest_block()) // PAGE)
        return length <= self.engine.longest and needed <= self.engine.pages

    def _add(self, entry: QueuedRequest) -> None:
        request, method = entry.request, self.method
        if isinstance(method, HSD):  # of such a kind that its row may join others
            drafts = [[]] if request.drafts is None else request.drafts
            method = HSD(drafts, **request.verification)
        entry.listener = listener = RowListener(request, self.eos, entry.decoder.clock)
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
        entries = [QueuedRequest(request, self) for request in requests]
        self._requests += entries
        for entry in entries:
            self.queue.put(entry)
        futures = [asyncio.wrap_future(entry.future) for entry in entries]
        try:
            return await asyncio.gather(*futures)
        except Exception:
            for future in futures:  # the others leave the engine with the first that failed
                future.cancel()
            raise
