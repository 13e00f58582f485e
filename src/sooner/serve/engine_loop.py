"""One turn of the engine after the other: a step, what came of it, and who is told.

The engine is the only scheduler, and has every request from its arrival on. No thread and no
waiting here: `EngineThread` turns the loop, and tests do with a clock of their own. A request
without a deadline counts as due `PATIENCE` seconds after it came: it is overtaken by urgent ones
for so long, and then by none that comes later.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

from ..engine.request import Request, RequestOptions, TokenLogprobs
from ..engine.stats.run import DraftCount
from ..errors import is_device_fault

logger = logging.getLogger("sooner.serve")

PATIENCE = 30.0
"""Seconds after which a request without a deadline counts as due."""

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


Sink = Callable[[Tokens | None], None]
"""Takes new tokens of a request; `None` once it has ended."""


def nobody(event: Tokens | None) -> None:
    """A sink that hears nothing."""


@dataclass(eq=False, kw_only=True)
class ServedRequest(Request):
    """A request of the engine, with who is told of it and what is counted of it.

    The engine's thread alone writes what stands behind `grammar`.

    Attributes:
        id: of the client's request, and the number of the choice, for the log.
        prompt_tokens: ids of its prompt, placeholders of pixels among them.
        stop_token_ids: ids that end it; the one that does is told, too.
        predicted_tokens: ids of OpenAI's `prediction`.
        sink: told its tokens and then, once, its end, in the engine's thread; must not block. If it
            raises, the client is taken to have left.
        grammar: what masks its tokens, if anything does; it accepts what is committed.
        completion_tokens: that were told.
        acceptance: accepted draft tokens of a round -> number of rounds, prefills not counted.
        has_begun: it has had a row.
        is_lost: its client can't be told anything.
        counted: drafts and preemptions that metrics have.
        first_at, last_at: when its first tokens and its last ones were told.
    """

    id: str
    prompt_tokens: int = 0
    stop_token_ids: frozenset[int] = frozenset()
    predicted_tokens: int = 0
    sink: Sink = field(default=nobody, repr=False)
    grammar: Any = field(default=None, repr=False)
    completion_tokens: int = 0
    acceptance: Counter[int] = field(default_factory=Counter, repr=False)
    has_begun: bool = field(default=False, repr=False)
    is_lost: bool = field(default=False, repr=False)
    counted: DraftCount = field(default_factory=DraftCount, repr=False)
    counted_preemptions: int = field(default=0, repr=False)
    first_at: float | None = field(default=None, repr=False)
    last_at: float = field(default=0.0, repr=False)

    @property
    def accepted_predictions(self) -> int:
        """Returns how many tokens of its prediction were accepted."""
        right = sum(size * rounds for size, rounds in self.acceptance.items())
        return min(right, self.predicted_tokens)

    def release(self) -> None:
        """Let go of prompt, pixels and client: whoever awaited the request may hold it for long."""
        self.inputs, self.options, self.sink = {}, RequestOptions({}), nobody
        self.call = self.prompt_info = self.preempted = self.grammar = None


def seed_of(seed: int | None, choice: int) -> int:
    """Returns what keys the draws of a choice, 63 bits; without a seed it is drawn.

    The first choice has the seed itself, so it says what `sooner.generate` says under it.
    """
    if seed is None:
        return secrets.randbits(63)
    mixed = (seed + choice * 0x9E3779B97F4A7C15) % (1 << 64)
    if choice:
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = ((mixed ^ (mixed >> shift)) * factor) % (1 << 64)  # SplitMix64's finaliser
        mixed ^= mixed >> 31
    return mixed % (1 << 63)


class EngineLike(Protocol):
    """What `sooner.Engine` is to its thread; robot policies have another, tests a stub.

    It ends requests that are late, failed or complete within `step`, by `Request.finish`. It may
    have `pages` and `pages_used` of its memory, and `close`.
    """

    @property
    def is_idle(self) -> bool: ...

    def add(self, request: Any) -> None: ...

    def step(self) -> Any: ...

    def cancel(self, request: Any) -> None: ...


class EngineDiedError(Exception):
    """The accelerator failed; nothing more can be computed in this process."""


class EngineLoop:
    """Hands requests to the engine and tells their clients; each request ends exactly once.

    Args:
        build: makes the engine, and another one when a step failed.
        clock: seconds, the same as in `Request.arrived` and `deadline`.
        listener: for metrics; what it has of the methods of `ServerMetrics` is called. Its errors
            are logged and no request's.
        on_end: called when a request has ended, before its client is told.
        patience: seconds after which a request without a deadline counts as due.

    Attributes:
        engine: `None` until `open`, and after a failure that could not be repaired.
        requests: that have not ended, in the order of their arrival.
    """

    def __init__(
        self,
        build: Callable[[], EngineLike],
        clock: Clock,
        listener: Any = None,
        on_end: Callable[[], None] = lambda: None,
        patience: float = PATIENCE,
    ) -> None:
        self.build, self.clock, self.listener = build, clock, listener
        self.on_end, self.patience = on_end, patience
        self.engine: EngineLike | None = None
        self.requests: list[ServedRequest] = []

    @property
    def is_idle(self) -> bool:
        """Whether no request is held."""
        return not self.requests

    @property
    def rows(self) -> int:
        """Requests that have a row; read in any thread."""
        return sum(not request.is_waiting for request in list(self.requests))

    def open(self) -> None:
        """Make the engine, and hand it the requests that are held.

        Raises:
            Exception: what its making raises.
        """
        self.engine = self.build()
        for request in list(self.requests):
            self._add(request)

    def add(self, request: ServedRequest) -> None:
        """Adds a request to those of the engine."""
        due, deadline = request.arrived + self.patience, request.deadline
        request.priority = due if deadline is None else deadline
        request.last_at = request.arrived
        request.options = replace(request.options, on_tokens=partial(self._commit, request))
        self.requests.append(request)
        self._add(request)

    def _add(self, request: ServedRequest) -> None:
        if self.engine is None:
            return  # whoever makes one hands it over
        try:
            self.engine.add(request)
        except Exception as error:
            self._raise_if_dead(error)
            self._end(request, error)

    def cancel(self, request: ServedRequest) -> None:
        """End a request before its time, unless it has ended; its row is free when this returns."""
        if request not in self.requests:
            return
        failure: BaseException | None = None
        try:
            if self.engine is not None:
                self.engine.cancel(request)
        except BaseException as error:
            failure = error
        if not request.has_ended:
            request.finish([[]], "cancelled")
        if failure is not None:  # of all rows, so it waits until this request has been seen to
            self._end(request)
            self._mend(failure)
        self._look(self.clock())

    def close(self, error: Exception) -> None:
        """End every request with an error, and let go of the engine."""
        for request in list(self.requests):
            self._end(request, error)
        self._let_go()

    def turn(self) -> None:
        """Let the engine take a step, and tell what came of it.

        Raises:
            EngineDiedError: the accelerator failed. Requests are still held: `close` tells them.
            Exception: the engine failed, its requests were told, and it could not be made again.
        """
        if not self.requests:
            return
        assert self.engine is not None
        started = self.clock()
        try:
            self.engine.step()
        except BaseException as error:
            self._mend(error)
            return
        self._look(started)
        if self.requests and self.engine.is_idle:
            self._mend(RuntimeError("the engine lost requests"), keeps_waiting=False)

    def _look(self, started: float) -> None:
        """See which requests a step that began at `started` gave a row, took it, or ended."""
        for request in list(self.requests):
            if not (request.has_begun or request.is_waiting):
                request.has_begun = True
                self._record("begun", request, started - request.arrived)
            if request.num_preemptions > request.counted_preemptions:
                request.counted_preemptions = request.num_preemptions
                self._record("preempted", request)
            if request.has_ended:
                if request.error is not None:
                    self._raise_if_dead(request.error)
                self._end(request)
        for request in list(self.requests):
            if request.is_lost:
                self.cancel(request)

    def _mend(self, error: BaseException, keeps_waiting: bool = True) -> None:
        """The engine raised: what it decoded is lost, and who waits goes on with another one."""
        self._raise_if_dead(error)
        lost = [
            request
            for request in self.requests
            if not (keeps_waiting and request.is_waiting and not request.num_preemptions)
        ]
        names = ", ".join(request.id for request in lost)
        logger.error("the engine failed; requests lost: %s", names or "none", exc_info=error)
        self._let_go()
        for request in lost:
            self._end(request, error if isinstance(error, Exception) else RuntimeError(error))
        self.open()

    def _let_go(self) -> None:
        """Drop the engine, and what it holds, as far as a failed one still can."""
        close, self.engine = getattr(self.engine, "close", None), None
        with suppress(Exception):
            if close is not None:
                close()

    def _raise_if_dead(self, error: BaseException) -> None:
        if is_device_fault(error):
            self.engine = None  # whatever is asked of it now may hang
            raise EngineDiedError(str(error)) from error

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
            self._count_drafts(request, drafted)
        request.completion_tokens += len(ids)
        is_first = request.first_at is None
        if is_first:
            request.first_at = now
        self._record("committed", request, len(ids), now - request.last_at, is_first)
        request.last_at = now
        self._tell(request, Tokens(list(ids), drafted, logprobs))

    def _count_drafts(self, request: ServedRequest, accepted: int) -> None:
        """Take over what was verified since the last time; `accepted` tokens of that were right."""
        drafts = request.num_drafts - request.counted.rounds
        tokens = request.num_draft_tokens - request.counted.tokens
        request.counted = DraftCount(request.num_drafts, request.num_draft_tokens)
        if drafts:
            self._record("drafted", request, drafts, tokens, accepted)

    def _end(self, request: ServedRequest, error: Exception | None = None) -> None:
        """Tell a client the end of a request that the engine has ended.

        Args:
            error: ends it here, without the engine.
        """
        if error is not None:
            request.error, request.finish_reasons = error, ["error"]
            request.tokens = request.tokens or [[]]
        self._count_drafts(request, 0)
        self.requests.remove(request)
        self.on_end()
        seconds = self.clock() - request.arrived
        self._tell(request, None)
        self._record("ended", request, seconds)
        request.release()

    def _tell(self, request: ServedRequest, event: Tokens | None) -> None:
        if request.is_lost:
            return
        try:
            request.sink(event)
        except Exception:
            request.is_lost = True
            logger.info("request %s can't be told anything any more; it is cancelled", request.id)

    def _record(self, name: str, *values: Any) -> None:
        try:
            if (hook := getattr(self.listener, name, None)) is not None:
                hook(*values)
        except Exception:
            logger.exception("metrics of a request are lost")
