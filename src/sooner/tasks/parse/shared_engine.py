"""One engine for many pages: a thread that turns it, requests that join its rows and leave them."""

from __future__ import annotations

import queue
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...engine.memory.manager import PAGE
from ...engine.request import Request
from ...engine.scheduler import Engine
from ...engine.stats.run import Stats
from ...errors import SoonerError, is_out_of_memory
from ...methods import HSD, Method
from .decoding import RowListener
from .steps import Clock, DecodeRequest, DecodeResult, decode_alone

Done: TypeAlias = Callable[[list[DecodeResult] | None, Exception | None], None]
"""Told the results of some requests, or what went wrong with one of them."""


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
        done: told once all of them have ended.
        clock: of the page.
        priority: tickets with less of it go first.
        rows: what the engine was given.
        is_alone: they are decoded with nothing beside them.
        error: of the first of them that failed.
        seconds_before: that the engine spent on them before they were begun anew.
    """

    requests: Sequence[DecodeRequest]
    done: Done
    clock: Clock
    priority: float
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

    def decode(self, ticket: PageTicket) -> None:
        """Decode its requests; `PageTicket.done` is told of them, in the engine's thread."""
        self._commands.put(lambda: self._line.append(ticket))

    def cancel(self, ticket: PageTicket) -> None:
        """End its requests before their time; nobody is told of them."""
        self._commands.put(lambda: self._cancel(ticket))

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
                    ticket.done(None, error)
                self._running.clear()
                self.engine.close()

    def _listen(self) -> None:
        """Do what was asked for; wait for it where there is nothing else to do."""
        is_idle = self.engine.is_idle and not self._line and not self._is_closing
        while is_idle or not self._commands.empty():
            self._commands.get()()
            is_idle = False

    def _close(self) -> None:
        self._is_closing = True
        self.engine.close()
        error = SoonerError("the parser was closed before the page came to its end")
        tickets = [entry for entry, _ in self._running.values()] + list(self._line)
        for ticket in {id(entry): entry for entry in tickets}.values():
            ticket.done(None, error)
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
            ticket.done([row.result() for row in ticket.rows], None)
        elif is_out_of_memory(error) and not ticket.is_alone:
            ticket.seconds_before, ticket.rows, ticket.error = ticket.seconds, [], None
            ticket.is_alone = True  # others may have been what was too much
            self._line.appendleft(ticket)
        else:
            ticket.done(None, error)

    def _alone(self, ticket: PageTicket) -> None:
        """Decode a ticket's requests one after the other, with nothing beside them."""
        model: Any = self.engine.model
        try:
            results = [decode_alone(item, model, self.eos) for item in ticket.requests]
        except Exception as error:
            ticket.done(None, error)
            return
        ticket.seconds_before += sum(item.stats.total_seconds for item in results)
        ticket.done(results, None)

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
