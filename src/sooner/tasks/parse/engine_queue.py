"""The requests of many pages to one engine, in one event loop, and the decoder of each page."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from ...engine.memory.manager import PAGE
from ...engine.request import Request
from ...engine.scheduler import Engine
from ...engine.stats.run import Stats
from ...errors import is_out_of_memory
from ...methods import HSD, Method
from .decoding import DecodeRequest, DecodeResult, PageDecoder, RowListener, decode_alone

T = TypeVar("T")

CROPS = 8
"""Crops of a page that are one request of the engine, prefilled together."""


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
        needed = rows * -(-(length + self.method.largest_block()) // PAGE)
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
