"""The thread that owns the engine.

The engine is the only scheduler, and has every request from its arrival on. A request without a
deadline counts as due `DUE_SECONDS` after it came: it is overtaken by urgent ones for so long, and
then by none that comes later.

Requests and hang-ups reach the thread by a queue, tokens and ends leave it by sinks. It is a
daemon, so a forward that hangs does not keep the process alive, and it shows that it lives:
`last_tick` moves with every round, and every second while there is nothing to do.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import queue
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple

from ..engine.request import Request, RequestOptions, TokenLogprobs
from ..engine.rows import Reason
from ..errors import DEVICE_FAULT, is_device_fault
from .refusal import not_ready, stopping, too_many

logger = logging.getLogger("sooner.serve")

DUE_SECONDS = 30.0
"""Seconds after which a request without a deadline counts as due."""
IDLE_TICK = 1.0
"""Seconds between two ticks of a thread that has nothing to do."""
GRACE_TICK = 0.02
"""Seconds between two looks at whether a grace has ended."""
NOTIFY_SECONDS = 1.0
"""Seconds for telling clients what happened before the process ends."""

Clock = Callable[[], float]


class Tokens(NamedTuple):
    """Holds new tokens of a request.

    Attributes:
        ids: committed together, one or more.
        drafted: how many of them were drafted, from the first on.
        logprobs: one for each of them, if the request asked.
    """

    ids: list[int]
    drafted: int = 0
    logprobs: Sequence[TokenLogprobs] | None = None


Sink = Callable[[Tokens | None], Any]
"""Takes new tokens of a request; `None` once it has ended."""


def discard(event: Tokens | None) -> None:
    """A sink that discards every event."""


@dataclass(eq=False, kw_only=True)
class ServedRequest(Request):
    """A request of the engine, with who is told of it and what is counted of it.

    The engine's thread alone writes what stands behind `grammar`.

    Attributes:
        id: of the client's request, and the number of the choice, for the log.
        prompt_tokens: ids of its prompt, placeholders of pixels among them.
        stop_token_ids: ids that end it; the one that does is told, too.
        sink: told its tokens and then, once, its end, in the engine's thread; must not block. If it
            raises, the client is taken to have left.
        grammar: what masks its tokens, if anything does; it accepts what is committed.
        completion_tokens: that were told.
        acceptance: accepted draft tokens of a round -> number of rounds, prefills not counted.
        has_begun: it has had a row.
        is_lost: its client can't be told anything.
        last_at: when its last tokens were told; before any, when it arrived.
    """

    id: str
    prompt_tokens: int = 0
    stop_token_ids: frozenset[int] = frozenset()
    sink: Sink = field(default=discard, repr=False)
    grammar: Any = field(default=None, repr=False)
    completion_tokens: int = 0
    acceptance: Counter[int] = field(default_factory=Counter, repr=False)
    has_begun: bool = field(default=False, repr=False)
    is_lost: bool = field(default=False, repr=False)
    last_at: float = field(default=0.0, repr=False)

    @property
    def num_accepted(self) -> int:
        """Draft tokens that were accepted."""
        return sum(size * rounds for size, rounds in self.acceptance.items())

    def release(self) -> None:
        """Let go of prompt, pixels and client: whoever awaited the request may hold it for long."""
        self.inputs, self.options, self.sink = {}, RequestOptions({}), discard
        self.call = self.prompt_info = self.preempted = self.grammar = None


def seed_of(seed: int | None, choice: int) -> int:
    """Returns what keys the draws of a choice, 63 bits; without a seed it is drawn.

    The first choice has the seed itself, so it says what `sooner.generate` says under it.
    """
    if seed is None:
        return secrets.randbits(63)
    if choice == 0:
        return seed % (1 << 63)
    digest = hashlib.blake2b(f"{seed} {choice}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


ServiceState = Literal["warming", "ready", "draining", "failed"]


class ServiceLoad(NamedTuple):
    """What a service holds at a moment.

    Attributes:
        running: requests that are prefilled or decode.
        waiting: requests that are not begun, or were preempted.
        pages_used, pages: of the engine's memory; `pages` is 0 where nobody counts them.
    """

    running: int
    waiting: int
    pages_used: int = 0
    pages: int = 0


def end_process(status: int) -> None:
    """End the process without cleaning up: on a broken device that hangs."""
    time.sleep(NOTIFY_SECONDS)
    logging.shutdown()
    os._exit(status)


class EngineThread:
    """Takes requests from any thread, and hands them to an engine in one of its own; each request
    ends exactly once.

    The thread calls `open` once, and then `run_commands` and `step` in turns; tests call them
    themselves, with a clock of their own.

    Args:
        build: makes the engine and tries it, in that thread. It is a `sooner.Engine`, or has its
            `add`, `cancel`, `step` and `is_idle`; `pages`, `pages_used` and `close` are optional.
        max_requests: that may be held, with a row or without; more are refused.
        warm_up: run on the first engine before a request is taken.
        clock: seconds; the one of `Request.arrived` and `deadline`.
        due_seconds: seconds after which a request without a deadline counts as due.
        end_process: called with an exit status when the accelerator failed.

    Attributes:
        state: `warming` until the engine is there, `ready`, `draining` once it is told to stop,
            `failed` if there is no engine any more.
        on_ready: called in that thread once requests are taken.
        listener: a `ServerMetrics`, or none.
        last_tick: when the thread last went round, in the clock's seconds.
        fault: name of the error that it failed with.
        engine: `None` until `open`, and after a failure.
        requests: that have not ended, in the order of their arrival.
        num_requests: that have not ended, those that the thread has not taken yet included.
    """

    def __init__(
        self,
        build: Callable[[], Any],
        *,
        max_requests: int = 72,
        warm_up: Callable[[Any], None] = lambda engine: None,
        clock: Clock = time.monotonic,
        due_seconds: float = DUE_SECONDS,
        end_process: Callable[[int], None] = end_process,
    ) -> None:
        self.build, self.max_requests = build, max_requests
        self.clock, self.due_seconds = clock, due_seconds
        self.warm_up, self.end_process = warm_up, end_process
        self.on_ready: Callable[[], Any] = lambda: None
        self.listener: Any = None
        self.engine: Any = None
        self.requests: list[ServedRequest] = []
        self.num_requests = 0
        self.state: ServiceState = "warming"
        self.last_tick = clock()
        self.fault: str | None = None
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_closing, self._grace_end = False, math.inf
        self._thread = threading.Thread(target=self._run, name="sooner-engine", daemon=True)

    def start(self) -> None:
        """Make the engine and begin to work, unless it has begun; returns at once."""
        if self._thread.ident is None:
            self._thread.start()

    def submit(self, request: ServedRequest) -> None:
        """Take a request; its sink is told what follows.

        Raises:
            RefusedError: it is not taken.
        """
        with self._lock:
            if self.state != "draining" or self._is_closing:  # else it was under way before
                self.check_takes()
            self.num_requests += 1
            self._commands.put(partial(self._add_request, request))

    def cancel(self, request: ServedRequest, reason: Reason = "cancelled") -> None:
        """End a request before its time: its row is freed within a round, and its end is told."""
        self._commands.put(partial(self._abort, request, reason))

    def load(self) -> ServiceLoad:
        """Returns what is held now."""
        running = sum(not request.is_waiting for request in list(self.requests))
        waiting = max(self.num_requests - running, 0)
        used, pages = (getattr(self.engine, name, 0) or 0 for name in ("pages_used", "pages"))
        return ServiceLoad(running, waiting, used, pages)

    def drain(self) -> None:
        """Take nothing new; what is held or under way goes on."""
        with self._lock:
            if self.state in ("warming", "ready"):
                self.state = "draining"

    def close(self, grace: float = 30.0, under_way: Callable[[], int] = lambda: 0) -> bool:
        """Take nothing new, let what is held end, and end the thread.

        Args:
            grace: seconds after which whatever is left is told that the server stops.
            under_way: counts what is still to be submitted, or to be written.

        Returns:
            Whether the thread has ended; one that hangs in a forward is left behind.
        """
        self.drain()
        self._grace_end = min(self._grace_end, time.monotonic() + grace)
        while (self.num_requests or under_way()) and time.monotonic() < self._grace_end:
            time.sleep(GRACE_TICK)
        with self._lock:
            self._is_closing = True
            self._commands.put(lambda: self._end_all(stopping()))
        if self._thread.ident is not None:
            self._thread.join(NOTIFY_SECONDS)
        return not self._thread.is_alive()

    def end_grace(self) -> None:
        """End the grace of a `close` that waits in another thread."""
        self._grace_end = 0.0

    def check_takes(self) -> None:
        """Refuse a request if none is taken now.

        Raises:
            RefusedError: says why.
        """
        if (state := self.state) != "ready":
            raise not_ready(state, self.fault)
        if self.num_requests >= self.max_requests:
            raise too_many(self.max_requests)

    def _run(self) -> None:
        """The thread."""
        try:
            self.open()
            self.on_ready()
            while not (self._is_closing and self._commands.empty() and not self.requests):
                self.run_commands(IDLE_TICK)
                self.step()
                self.last_tick = self.clock()
        except BaseException as error:
            self._fail(error)
            if is_device_fault(error):
                logger.critical("the device failed; the process ends")
                self.end_process(DEVICE_FAULT)

    def open(self) -> None:
        """Make the engine, warm it up, and be ready.

        Raises:
            Exception: what its making raises, or the warming up.
        """
        self.engine = self.build()
        self.warm_up(self.engine)
        with self._lock:
            if self.state == "warming":
                self.state = "ready"

    def run_commands(self, seconds: float = 0.0) -> None:
        """Do what was asked meanwhile; wait so long for it if there is nothing else to do."""
        wait = not self.requests and seconds > 0
        with suppress(queue.Empty):
            while True:
                self._commands.get(wait, seconds)()
                wait = False

    def step(self) -> None:
        """Let the engine take a step, and tell what came of it.

        Raises:
            Exception: the engine failed, or lost requests; `_fail` tells those that are held.
        """
        if not self.requests:
            return
        started = self.clock()
        try:
            self.engine.step()
        finally:
            self._update_requests(started)
        for request in [request for request in self.requests if request.is_lost]:
            self._abort(request)
        if self.requests and self.engine.is_idle:
            raise RuntimeError("the engine lost requests")

    def _update_requests(self, started: float) -> None:
        """See which requests a step that began at `started` gave a row, took it, or ended."""
        for request in list(self.requests):
            if not (request.has_begun or request.is_waiting):
                request.has_begun = True
                self._record("on_start", request, started - request.arrived)
            if request.has_ended:
                if request.error is not None and is_device_fault(request.error):
                    raise request.error
                self._end(request)

    def _release_engine(self) -> None:
        """Drop the engine, and what it holds, as far as a failed one still can."""
        close, self.engine = getattr(self.engine, "close", None), None
        with suppress(Exception):
            if close is not None:
                close()

    def _commit(self, request: ServedRequest, row: int, ids: list[int], drafted: int) -> None:
        """Within a step: the engine committed tokens of a request. What is raised ends it."""
        now = self.clock()
        if request.grammar is not None:
            request.grammar.accept(ids)
        logprobs = None
        if request.options.logprobs is not None:
            logprobs = request.logprobs[0][-len(ids) :]
        if not request.is_prefilling:
            request.acceptance[drafted] += 1
        is_first = not request.completion_tokens
        request.completion_tokens += len(ids)
        self._record("on_tokens", request, len(ids), now - request.last_at, is_first)
        request.last_at = now
        self._send(request, Tokens(list(ids), drafted, logprobs))

    def _end(self, request: ServedRequest, error: Exception | None = None) -> None:
        """Tell a client the end of a request that the engine has ended.

        Args:
            error: ends it here, without the engine.
        """
        if error is not None:
            request.error, request.finish_reasons = error, ["error"]
            request.tokens = request.tokens or [[]]
        self.requests.remove(request)
        with self._lock:  # before the client is told, so that it is not refused if it asks again
            self.num_requests -= 1
        self._record("on_end", request, self.clock() - request.arrived)
        self._send(request, None)
        request.release()

    def _send(self, request: ServedRequest, event: Tokens | None) -> None:
        if request.is_lost:
            return
        try:
            request.sink(event)
        except Exception:
            request.is_lost = True
            logger.info("request %s can't be told anything any more; it is cancelled", request.id)

    def _record(self, name: str, *values: Any) -> None:
        if self.listener is None:
            return
        try:
            getattr(self.listener, name)(*values)
        except Exception:  # no request may end for a figure's sake
            logger.exception("metrics of a request are lost")

    def _add_request(self, request: ServedRequest) -> None:
        """Adds a request to those of the engine."""
        due, deadline = request.arrived + self.due_seconds, request.deadline
        request.priority = due if deadline is None else deadline
        request.last_at = request.arrived
        request.options = replace(request.options, on_tokens=partial(self._commit, request))
        self.requests.append(request)
        if self.engine is None:
            return  # whoever lets go of the engine ends its requests
        try:
            self.engine.add(request)
        except Exception as error:
            if is_device_fault(error):
                raise
            self._end(request, error)

    def _abort(self, request: ServedRequest, reason: Reason = "cancelled") -> None:
        """End a request before its time, unless it has ended; its row is free when this returns."""
        if request not in self.requests or self.engine is None:
            return  # whoever lets go of the engine ends its requests
        self.engine.cancel(request, reason)
        self._update_requests(self.clock())

    def _end_all(self, error: Exception) -> None:
        """End every request with an error, and let go of the engine."""
        for request in list(self.requests):
            self._end(request, error)
        self._release_engine()

    def _fail(self, error: BaseException) -> None:
        """There is no engine any more: tell everybody, and take nothing new."""
        with self._lock:
            self.fault = type(error).__name__
            self.state = "failed"
        logger.critical("the engine's thread ends", exc_info=error)
        reason = not_ready(self.state, self.fault)
        if is_device_fault(error):
            self.engine = None  # whatever is asked of it now may hang
        self._release_engine()
        self.run_commands()  # what was submitted meanwhile is told, too
        self._end_all(reason)
