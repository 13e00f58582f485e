"""The thread that owns the engine: requests and hang-ups in by a queue, tokens and ends out.

It is a daemon, so a forward that hangs does not keep the process alive, and it shows that it lives:
`last_tick` moves with every round, and every second while there is nothing to do.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

from .engine_loop import PATIENCE, Clock, EngineDiedError, EngineLike, EngineLoop, ServedRequest
from .refusal import failed, not_ready, stopping, too_many

logger = logging.getLogger("sooner.serve")

IDLE_TICK = 1.0
"""Seconds between two ticks of a thread that has nothing to do."""
LAST_WORDS = 1.0
"""Seconds for telling clients what happened before the process ends."""
DEVICE_FAULT = 70
"""Exit status of a process whose accelerator failed (`EX_SOFTWARE`)."""

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


Aside = Callable[[Callable[[], bool]], None]
"""Work of the engine's thread that is no request; handed what says whether it has to give way."""


def end_process(status: int) -> None:
    """End the process without cleaning up: on a broken device that hangs."""
    time.sleep(LAST_WORDS)
    logging.shutdown()
    os._exit(status)


class EngineThread:
    """Takes requests from any thread, and runs the engine in one of its own.

    Args:
        build: makes the engine, in that thread; called again when a step failed.
        max_requests: that may be held, with a row or without; more are refused.
        warm_up: run on the new engine before the first request is taken.
        listener: as `EngineLoop`'s.
        clock: seconds; the one of `Request.arrived` and `deadline`.
        patience: seconds after which a request without a deadline counts as due.
        end_process: called with an exit status when the accelerator failed.

    Attributes:
        state: `warming` until the engine is there, `ready`, `draining` once it is told to stop,
            `failed` if there is no engine any more.
        last_tick: when the thread last went round, in the clock's seconds.
        fault: name of the error that it failed with.
    """

    def __init__(
        self,
        build: Callable[[], EngineLike],
        *,
        max_requests: int = 72,
        warm_up: Callable[[EngineLike], None] = lambda engine: None,
        listener: Any = None,
        clock: Clock = time.monotonic,
        patience: float = PATIENCE,
        end_process: Callable[[int], None] = end_process,
    ) -> None:
        self.max_requests, self.clock = max_requests, clock
        self.warm_up, self.end_process = warm_up, end_process
        self.state: ServiceState = "warming"
        self.last_tick = clock()
        self.fault: str | None = None
        self._loop = EngineLoop(build, clock, listener, self._count_end, patience)
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Condition()
        self._submitted = 0  # requests that have not ended, those in the queue of commands, too
        self._asides: deque[Aside] = deque()
        self._is_closing = self._is_hurried = False
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
            self.check_takes()
            self._submitted += 1
            self._commands.put(partial(self._loop.add, request))

    def cancel(self, request: ServedRequest) -> None:
        """End a request before its time: its row is freed within a round, and its end is told."""
        self._commands.put(partial(self._loop.cancel, request))

    def when_idle(self, work: Aside) -> None:
        """Have something done in the engine's thread once no request is held, with the model to
        itself.

        Requests come first: as soon as one is submitted, what `work` is handed says that it is to
        end.

        Args:
            work: must raise nothing, and ask at least every few seconds; else `last_tick` is late.
        """
        self._asides.append(work)
        self._commands.put(lambda: None)  # wakes the thread

    def _is_needed(self) -> bool:
        """Returns whether a request waits, or the end."""
        self.last_tick = self.clock()
        return self._submitted > 0 or self.state != "ready"

    def load(self) -> ServiceLoad:
        """Returns what is held now."""
        running, engine = self._loop.rows, self._loop.engine
        waiting = max(self._submitted - running, 0)
        used, pages = (getattr(engine, name, 0) or 0 for name in ("pages_used", "pages"))
        return ServiceLoad(running, waiting, used, pages)

    def drain(self) -> None:
        """Take nothing new; what is held goes on."""
        with self._lock:
            if self.state in ("warming", "ready"):
                self.state = "draining"

    def close(self, grace: float = 30.0) -> bool:
        """Take nothing new, let what is held end, and end the thread.

        Args:
            grace: seconds after which whatever is left is told that the server stops.

        Returns:
            Whether the thread has ended; one that hangs in a forward is left behind.
        """
        self.drain()
        with self._lock:
            self._lock.wait_for(lambda: self._is_hurried or not self._submitted, grace)
            self._is_closing = True
            self._commands.put(lambda: self._loop.close(stopping()))
        if self._thread.ident is not None:
            self._thread.join(LAST_WORDS)
        return not self._thread.is_alive()

    def hurry(self) -> None:
        """End the grace of a `close` that waits in another thread."""
        with self._lock:
            self._is_hurried = True
            self._lock.notify_all()

    def check_takes(self) -> None:
        """Refuse a request if none is taken now.

        Raises:
            RefusedError: says why.
        """
        if self.state != "ready" and (refusal := not_ready(self.state, self.fault)) is not None:
            raise refusal
        if self._submitted >= self.max_requests:
            raise too_many(self.max_requests)

    @property
    def num_requests(self) -> int:
        """Requests that have not ended."""
        return self._submitted

    def _count_end(self) -> None:
        """Before the client is told, so that it is not refused if it asks again at once."""
        with self._lock:
            self._submitted -= 1
            self._lock.notify_all()

    def _run(self) -> None:
        """The thread."""
        try:
            self._loop.open()
            assert self._loop.engine is not None
            self.warm_up(self._loop.engine)
            with self._lock:
                if self.state == "warming":
                    self.state = "ready"
            self._turn_until_closed()
        except EngineDiedError as error:
            self._fail(error.__cause__ or error)
            logger.critical("the device failed; the process ends")
            self.end_process(DEVICE_FAULT)
        except BaseException as error:
            self._fail(error)

    def _turn_until_closed(self) -> None:
        while not (self._is_closing and self._commands.empty() and self._loop.is_idle):
            self._obey()
            self._loop.turn()
            if self._asides and not self._is_needed():
                self._asides.popleft()(self._is_needed)
            self.last_tick = self.clock()

    def _obey(self) -> None:
        """Do what was asked meanwhile; wait for it a moment if there is nothing else to do."""
        wait = self._loop.is_idle
        while True:
            try:
                command = self._commands.get(wait, IDLE_TICK)
            except queue.Empty:
                return
            command()
            wait = False

    def _fail(self, error: BaseException) -> None:
        """There is no engine any more: tell everybody, and take nothing new."""
        with self._lock:
            self.fault = type(error).__name__
            self.state = "failed"
        logger.critical("the engine's thread ends", exc_info=error)
        reason = failed(self.fault)
        while True:
            try:
                self._commands.get_nowait()()  # what was submitted meanwhile is told, too
            except queue.Empty:
                break
        self._loop.close(reason)
