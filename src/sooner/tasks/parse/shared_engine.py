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
from typing import Any, TypeVar

from ...documents import PageDraft
from ...engine.memory.manager import PAGE
from ...engine.request import Request
from ...engine.scheduler import Engine
from ...engine.stats.run import Stats
from ...errors import SoonerError, is_out_of_memory
from ...methods import HSD, Method
from .decoder import Clock, DecodeRequest, DecodeResult, decode_alone
from .decoding import RowListener
from .in_flight import CROPS
from .result import Late

T = TypeVar("T")

CLOSED = "the parser was closed before the page came to its end"


@dataclass(eq=False)
class _Rows:
    """A request in the engine."""

    listener: RowListener
    admitted: Request

    def result(self) -> DecodeResult:
        accepted, request = self.listener.accepted, self.admitted
        assert request.tokens is not None
        tokens = sum(map(len, request.tokens))
        stats = Stats(
            mode=request.mode,
            method=request.method.name,
            rows=request.rows,
            tokens=tokens,
            decode_tokens=tokens - request.rows,
            nfe=max(map(len, accepted)),
            acceptance_histogram=Counter(count for row in accepted for count in row[1:]),
            num_draft_tokens=request.num_draft_tokens,
        )
        stats.seconds["prefill"] = request.prefill_seconds
        stats.seconds["verify"] = request.round_seconds
        return DecodeResult(self.listener.finished(), stats)


@dataclass(eq=False)
class PageTicket:
    """Requests of one page that are decoded side by side.

    Attributes:
        requests: of several rows each, if these are to be prefilled together.
        clock: of the page.
        priority: tickets with less of it go first.
        future: their results, or what went wrong with the first of them that failed.
        rows: what the engine was given.
        is_alone: they are decoded with nothing beside them.
        error: of the first of them that failed.
        seconds_before: that the engine spent on them before they were begun anew.
    """

    requests: Sequence[DecodeRequest]
    clock: Clock
    priority: float
    future: Future[list[DecodeResult]] = field(default_factory=Future)
    rows: list[_Rows] = field(default_factory=list)
    is_alone: bool = False
    error: Exception | None = None
    seconds_before: float = 0.0

    @property
    def seconds(self) -> float:
        """That the engine has spent on it."""
        rows = (row.admitted for row in self.rows)
        shares = sum(entry.prefill_seconds + entry.round_seconds for entry in rows)
        return self.seconds_before + shares

    def fail(self, error: Exception) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def finish(self, results: list[DecodeResult]) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(results)


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
        self._line: deque[PageTicket] = deque()  # not begun, in order
        self._running: dict[Request, tuple[PageTicket, _Rows]] = {}
        self._is_closing = False
        # A daemon: a forward that hangs must not keep the program from ending.
        self._thread = threading.Thread(target=self._run, name="shared-engine", daemon=True)
        self._thread.start()

    async def decode(self, ticket: PageTicket) -> list[DecodeResult]:
        """Returns the results of its requests; where it is cancelled, they leave the engine.

        Raises:
            Exception: of the first of them that failed.
        """
        self._commands.put(lambda: self._line.append(ticket))
        try:
            return await asyncio.wrap_future(ticket.future)
        except asyncio.CancelledError:
            self._commands.put(lambda: self._cancel(ticket))
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
                for ticket in {id(entry): entry for entry, _ in self._running.values()}.values():
                    ticket.fail(error)
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
        error = SoonerError(CLOSED)
        tickets = [entry for entry, _ in self._running.values()] + list(self._line)
        for ticket in {id(entry): entry for entry in tickets}.values():
            ticket.fail(error)
        self._line.clear()
        self._running.clear()

    def _begin(self) -> None:
        """Give the engine what is in line, up to what has to be decoded alone."""
        while self._line:
            ticket = self._line[0]
            if ticket.is_alone or any(not self._may_share(request) for request in ticket.requests):
                if self._running:
                    return
                self._line.popleft()
                self._alone(ticket)
                return
            self._line.popleft()
            self._admit(ticket)

    def _may_share(self, request: DecodeRequest) -> bool:
        if request.prefill is not None or self.engine.longest is None:
            return request.prefill is None
        rows, width = request.inputs["input_ids"].shape
        length = width + max(request.limits)
        needed = rows * -(-(length + self.method.largest_block()) // PAGE)
        return length <= self.engine.longest and needed <= self.engine.pages

    def _admit(self, ticket: PageTicket) -> None:
        try:
            for request in ticket.requests:
                listener = RowListener(
                    request.limits, request.repetition, self.eos, request.seconds, request.budget,
                    ticket.clock,
                )  # fmt: skip
                admitted = self.engine.add_request(
                    request.inputs, method=self._method(request), priority=ticket.priority,
                    **listener.options,
                )  # fmt: skip
                row = _Rows(listener, admitted)
                ticket.rows.append(row)
                self._running[admitted] = ticket, row
        except Exception as error:
            ticket.error = error
            self._drop(ticket)
            self._settle(ticket)

    def _method(self, request: DecodeRequest) -> Method:
        """Such that its row may join others."""
        if not isinstance(self.method, HSD):
            return self.method
        drafts = [[]] if request.drafts is None else request.drafts
        return HSD(drafts, **request.verification)

    def _end(self, request: Request) -> None:
        """A row has left the engine."""
        ticket, _ = self._running.pop(request, (None, None))
        if ticket is None:
            return
        if ticket.error is None and request.error is not None:
            ticket.error = request.error
            self._drop(ticket)
        self._settle(ticket)

    def _settle(self, ticket: PageTicket) -> None:
        """Tell of a ticket whose rows have all ended."""
        if any(row.admitted in self._running for row in ticket.rows):
            return
        error = ticket.error
        if error is None:
            ticket.finish([row.result() for row in ticket.rows])
        elif is_out_of_memory(error) and not ticket.is_alone:
            ticket.seconds_before, ticket.rows, ticket.error = ticket.seconds, [], None
            ticket.is_alone = True  # others may have been what was too much
            self._line.appendleft(ticket)
        else:
            ticket.fail(error)

    def _alone(self, ticket: PageTicket) -> None:
        """Decode a ticket's requests one after the other, with nothing beside them."""
        model: Any = self.engine.model
        try:
            results = [decode_alone(item, model, self.eos) for item in ticket.requests]
        except Exception as error:
            ticket.fail(error)
            return
        ticket.seconds_before += sum(item.stats.total_seconds for item in results)
        ticket.finish(results)

    def _cancel(self, ticket: PageTicket) -> None:
        if ticket in self._line:
            self._line.remove(ticket)
        self._drop(ticket)

    def _drop(self, ticket: PageTicket) -> None:
        """Take its rows out of the engine."""
        for row in ticket.rows:
            if row.admitted in self._running:
                self.engine.cancel(row.admitted)
                self._running.pop(row.admitted, None)


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
        self._tickets: list[PageTicket] = []
        self._spent = 0.0  # in the pages' thread
        self._began: float | None = time.perf_counter()

    def clock(self) -> float:
        began = self._began
        spent = self._spent + (0.0 if began is None else time.perf_counter() - began)
        return spent + sum(ticket.seconds for ticket in self._tickets)

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
        ready = [
            request
            if request.late is None
            else replace(request, drafts=await request.late(None), late=None)
            for request in requests
        ]
        ticket = PageTicket(ready, self.clock, self.priority)
        self._tickets.append(ticket)
        with self._suspended():
            return await self.engine.decode(ticket)

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
