"""One engine for many pages: a thread that turns it, and the decoder of each page."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ...documents import PageDraft
from ...engine.memory.manager import PAGE
from ...engine.request import Request
from ...engine.scheduler import Engine
from ...engine.stats.run import Stats
from ...errors import SoonerError, is_out_of_memory
from ...methods import HSD, Method
from .decoder import Clock, DecodeRequest, DecodeResult, decode_alone
from .decoding import RowListener
from .result import Late

T = TypeVar("T")

CROPS = 8
"""Crops of a page that are one request of the engine, prefilled together."""

CLOSED = "the parser was closed before the page came to its end"


@dataclass(eq=False)
class SharedRequest:
    """Holds a request of a page, from the pages' thread to its rows in the engine.

    Attributes:
        request: of several rows, if these are to be prefilled together.
        clock: of the page.
        priority: requests with less of it go first.
        future: its result, or what went wrong.
        listener, rows: while it is in the engine.
        is_alone: it is decoded with nothing beside it.
        seconds_before: that the engine spent on it before it was begun anew.
    """

    request: DecodeRequest
    clock: Clock
    priority: float
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
        if not self.future.set_running_or_notify_cancel():
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


class SharedEngine:
    """A thread that decodes the requests of many pages in the rounds of one engine.

    What can't share rounds is decoded with nothing beside it, once all that was begun before has
    ended: a request with a sparse prefill, one that is longer than the engine has pages for, and
    one for which memory ran out beside others.

    Args:
        engine: used by the thread alone from now on.
        method: how its rows are decoded; requests that come without drafts join them, too.
        eos: ids that end a text.
    """

    def __init__(self, engine: Engine, method: Method, eos: set[int]) -> None:
        self.engine, self.method, self.eos = engine, method, eos
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._line: deque[SharedRequest] = deque()  # not begun, in order
        self._running: dict[Request, SharedRequest] = {}
        self._is_closing = False
        # A daemon: a forward that hangs must not keep the program from ending.
        self._thread = threading.Thread(target=self._run, name="shared-engine", daemon=True)
        self._thread.start()

    async def decode(self, entry: SharedRequest) -> DecodeResult:
        """Returns the result of a request; where it is cancelled, it leaves the engine.

        Raises:
            Exception: what went wrong with it.
        """
        self._commands.put(lambda: self._line.append(entry))
        try:
            return await asyncio.wrap_future(entry.future)
        except asyncio.CancelledError:
            self._commands.put(lambda: self._cancel(entry))
            raise

    def close(self) -> None:
        """End all requests, and the thread."""
        self._commands.put(self._close)
        self._thread.join()

    def _run(self) -> None:
        while not self._is_closing:
            self._listen()
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

    def _listen(self) -> None:
        """Carry out commands; wait for one where there is nothing else to do."""
        is_idle = self.engine.is_idle and not self._line and not self._is_closing
        while is_idle or not self._commands.empty():
            self._commands.get()()
            is_idle = False

    def _close(self) -> None:
        self._is_closing = True
        self.engine.close()
        for entry in (*self._running.values(), *self._line):
            entry.finish(SoonerError(CLOSED))
        self._line.clear()
        self._running.clear()

    def _begin(self) -> None:
        """Give the engine what is in line, up to what has to be decoded alone."""
        while self._line:
            entry = self._line[0]
            is_alone = entry.is_alone or not self._may_share(entry.request)
            if is_alone and self._running:
                return
            self._line.popleft()
            if is_alone:
                self._alone(entry)
                return
            self._add(entry)

    def _may_share(self, request: DecodeRequest) -> bool:
        if request.prefill is not None or self.engine.longest is None:
            return request.prefill is None
        rows, width = request.inputs["input_ids"].shape
        length = width + max(request.limits)
        needed = rows * -(-(length + self.method.largest_block()) // PAGE)
        return length <= self.engine.longest and needed <= self.engine.pages

    def _add(self, entry: SharedRequest) -> None:
        request = entry.request
        entry.listener = listener = RowListener(
            request.limits, request.repetition, self.eos, request.seconds, request.budget,
            entry.clock,
        )  # fmt: skip
        try:
            entry.rows = self.engine.add_request(
                request.inputs, method=self._method(request), priority=entry.priority,
                **listener.options,
            )  # fmt: skip
        except Exception as error:
            entry.finish(error)
            return
        self._running[entry.rows] = entry

    def _method(self, request: DecodeRequest) -> Method:
        """Such that its row may join others."""
        if not isinstance(self.method, HSD):
            return self.method
        drafts = [[]] if request.drafts is None else request.drafts
        return HSD(drafts, **request.verification)

    def _end(self, rows: Request) -> None:
        """The rows of a request have left the engine."""
        entry = self._running.pop(rows, None)
        if entry is None:
            return
        error = rows.error
        if error is not None and is_out_of_memory(error):
            entry.seconds_before, entry.rows = entry.seconds, None
            entry.is_alone = True  # others may have been what was too much
            self._line.appendleft(entry)
        else:
            entry.finish(entry.result() if error is None else error)

    def _alone(self, entry: SharedRequest) -> None:
        """Decode a request with nothing beside it."""
        try:
            result = decode_alone(entry.request, self.engine.model, self.eos)
        except Exception as error:
            entry.finish(error)
            return
        entry.seconds_before += result.stats.total_seconds
        entry.finish(result)

    def _cancel(self, entry: SharedRequest) -> None:
        if entry in self._line:
            self._line.remove(entry)
        if entry.rows is not None and self._running.pop(entry.rows, None) is not None:
            self.engine.cancel(entry.rows)


class SharedDecoder:
    """Decodes what one page asks for in a shared engine; see `PageDecoder`.

    A page's seconds are its share of what the engine did, and its own work between that.

    Args:
        engine: of all pages.
        priority: of the page; those with less of it go first.
    """

    max_rows: int | None = CROPS

    def __init__(self, engine: SharedEngine, priority: float) -> None:
        self.engine, self.priority = engine, priority
        self._requests: list[SharedRequest] = []
        self._spent = 0.0  # in the pages' thread
        self._began: float | None = time.perf_counter()

    def clock(self) -> float:
        began = self._began
        spent = self._spent + (0.0 if began is None else time.perf_counter() - began)
        return spent + sum(entry.seconds for entry in self._requests)

    @contextmanager
    def _suspended(self) -> Iterator[None]:
        """The page waits, and others have the thread."""
        if self._began is not None:
            self._spent += time.perf_counter() - self._began
        self._began = None
        try:
            yield
        finally:
            self._began = time.perf_counter()

    async def decode(self, requests: Sequence[DecodeRequest]) -> list[DecodeResult]:
        """Decode requests; what makes drafts of one is awaited in front of it."""
        entries = []
        for request in requests:
            if request.late is not None:
                request = replace(request, drafts=await request.late(None), late=None)
            entries.append(SharedRequest(request, self.clock, self.priority))
        self._requests += entries
        with self._suspended():
            tasks = [asyncio.ensure_future(self.engine.decode(entry)) for entry in entries]
            try:
                return await asyncio.gather(*tasks)
            except Exception:
                for task in tasks:  # the others leave the engine with the first that failed
                    task.cancel()
                raise

    async def wait(self, late: Late) -> PageDraft | None:
        """Wait for the page's draft in a thread of its own."""
        with self._suspended():
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
