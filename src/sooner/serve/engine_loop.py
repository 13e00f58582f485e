"""One turn of the engine after the other: deadlines, who begins, a step, what came of it.

No thread and no waiting: `EngineThread` turns it, and tests do with a clock of their own. The
engine schedules what it has: rows, prefill, pages, who makes room. Here is what it does not know:
jobs are given to it earliest deadline first, and one without a deadline counts as due `PATIENCE`
seconds after it came, so it is overtaken by urgent jobs for so long, and then by none that comes
later. The engine goes by the same order (`GenerationJob.due` is `Request.priority`).
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ..errors import is_device_fault
from .jobs import (
    EngineLike,
    Event,
    Finished,
    GenerationJob,
    Reason,
    Tokens,
    nobody,
    seed_of,
)

logger = logging.getLogger("sooner.serve")

PATIENCE = 30.0
"""Seconds after which a job without a deadline counts as due."""

Clock = Callable[[], float]
OptionsOf = Callable[[GenerationJob], Mapping[str, Any]]
"""The options of `Engine.add_request` for a job, but for its inputs, seed and priority."""


class EngineDiedError(Exception):
    """The accelerator failed; nothing more can be computed in this process."""


class EngineLoop:
    """Takes jobs in, runs steps of the engine, events out; each job ends exactly once.

    Args:
        build: makes the engine, and another one when a step failed.
        options_of: a job's options of `Engine.add_request`.
        clock: seconds, of any origin, the same as in `GenerationJob.arrived`.
        listener: for metrics; called with what `ChatMetrics` has methods for, if it has them, too.
            Its errors are logged and no job's.
        on_end: called when a job has ended, before it is told.
        patience: seconds after which a job without a deadline counts as due.

    Attributes:
        engine: `None` until `open`, and after a failure that could not be repaired.
        waiting: jobs that the engine does not have, most urgent first.
        running: jobs that it has, in the order in which it got them.
    """

    def __init__(
        self,
        build: Callable[[], EngineLike],
        options_of: OptionsOf,
        clock: Clock,
        listener: Any = None,
        on_end: Callable[[], None] = lambda: None,
        patience: float = PATIENCE,
    ) -> None:
        self.build, self.options_of, self.clock, self.listener = build, options_of, clock, listener
        self.on_end, self.patience = on_end, patience
        self.engine: EngineLike | None = None
        self.waiting: list[GenerationJob] = []
        self.running: list[GenerationJob] = []
        self._fault: BaseException | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no job is held."""
        return not (self.waiting or self.running)

    @property
    def rows(self) -> int:
        """Jobs that have a row; read in any thread."""
        return sum(not job.is_waiting for job in list(self.running))

    def open(self) -> None:
        """Make the engine.

        Raises:
            Exception: what its making raises.
        """
        self.engine = self.build()

    def add(self, job: GenerationJob) -> None:
        """Put a job in line."""
        job.due = job.arrived + self.patience if job.deadline is None else job.deadline
        job.reported_at = job.arrived
        insort(self.waiting, job, key=lambda entry: entry.order)

    def cancel(self, job: GenerationJob) -> None:
        """End a job before its time, unless it has ended; its row is free when this returns."""
        if job in self.waiting or job in self.running:
            self._end(job, "cancelled")
        self._mend()

    def close(self, error: Exception) -> None:
        """End every job with an error, and let go of the engine."""
        for job in (*self.running, *self.waiting):
            self._end(job, "error", error)
        self._fault = None
        self._let_go()

    def turn(self) -> None:
        """End what is too late, let jobs begin, and let the engine take a step.

        Raises:
            EngineDiedError: the accelerator failed. Jobs are still held: `close` tells them.
            Exception: the engine failed, its jobs were told, and it could not be made again.
        """
        now = self.clock()
        for job in (*self.waiting, *self.running):
            if job.deadline is not None and job.deadline <= now:
                self._end(job, "deadline")
        self._mend()
        while self.waiting and self._may_begin(self.waiting[0]):
            self._begin(self.waiting.pop(0))
        if self.running:
            self._step()
        for job in (*self.running, *self.waiting):
            if job.failure is not None:
                self._end(job, "error", job.failure)
            elif job.is_lost:
                self._end(job, "cancelled")
        self._mend()

    def _may_begin(self, job: GenerationJob) -> bool:
        """Returns whether the engine has room for a job, or has less urgent ones that wait."""
        assert self.engine is not None
        if len(self.running) < self.engine.max_rows:
            return True
        return any(job.order < other.order for other in self.running if other.is_waiting)

    def _begin(self, job: GenerationJob) -> None:
        assert self.engine is not None
        job.is_prefilling = True
        self.running.append(job)

        def on_tokens(row: int, ids: list[int], drafted: int) -> None:
            self._commit(job, list(ids), drafted)

        try:
            job.request = self.engine.add_request(
                job.inputs, seed=seed_of(job), on_tokens=on_tokens, priority=job.due,
                **self.options_of(job),
            )  # fmt: skip
        except Exception as error:
            self._raise_if_dead(error)
            self._end(job, "error", error)

    def _step(self) -> None:
        assert self.engine is not None
        started = self.clock()
        self.engine.queued = len(self.waiting)
        try:
            ended = self.engine.step()
        except BaseException as error:
            self._fault = error
            self._mend()
            return
        for job in self.running:
            self._follow(job, started)
        requests = {id(request): request for request in ended}
        for job in list(self.running):
            request = requests.get(id(job.request))
            if request is None:
                continue
            if request.error is not None:
                self._raise_if_dead(request.error)
                self._end(job, "error", request.error, request)
            else:
                self._end(job, _reason(request, job), request=request)
        if self.running and self.engine.is_idle:
            self._fault = RuntimeError("the engine lost requests")
            self._mend()

    def _follow(self, job: GenerationJob, started: float) -> None:
        """See whether the step that began at `started` gave a job a row, or took it."""
        if not (job.has_begun or job.is_waiting):
            job.has_begun = True
            self._record("begun", job, started - job.arrived)
        if (lost := getattr(job.request, "num_preemptions", 0)) > job.preemptions:
            job.preemptions, job.is_prefilling = lost, True
            self._record("preempted", job)

    def _mend(self) -> None:
        """If the engine raised, what it held is lost, and who waits goes on with another one."""
        error, self._fault = self._fault, None
        if error is None:
            return
        self._raise_if_dead(error)
        lost = list(self.running)
        names = ", ".join(job.id for job in lost)
        logger.error("the engine failed; requests lost: %s", names or "none", exc_info=error)
        self._let_go()
        for job in lost:
            job.request = None
            self._end(job, "error", error if isinstance(error, Exception) else RuntimeError(error))
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

    def _commit(self, job: GenerationJob, ids: list[int], drafted: int) -> None:
        """The engine committed tokens of a row, within a step."""
        now = self.clock()
        if job.failure is not None:
            return
        try:
            if job.grammar is not None:
                job.grammar.accept(ids)
            logprobs = None
            if job.sampling.get("logprobs") is not None:
                logprobs = job.request.logprobs[0][-len(ids) :]
        except Exception as error:
            job.failure = error
            return
        if not job.is_prefilling:
            job.accepted[drafted] += 1
            self._count_drafts(job, drafted)
        job.is_prefilling = False
        job.output += ids
        is_first = job.first_at is None
        if is_first:
            job.first_at = now
        self._record("committed", job, len(ids), now - job.reported_at, is_first)
        job.reported_at = now
        self._tell(job, Tokens(ids, drafted, logprobs))

    def _count_drafts(self, job: GenerationJob, accepted: int) -> None:
        """Take over what was verified since the last time; `accepted` tokens of that were right."""
        drafts = getattr(job.request, "num_drafts", 0) - job.draft_rounds
        tokens = getattr(job.request, "num_draft_tokens", 0) - job.draft_tokens
        job.draft_rounds += drafts
        job.draft_tokens += tokens
        if drafts:
            self._record("drafted", job, drafts, tokens, accepted)

    def _end(
        self,
        job: GenerationJob,
        reason: Reason,
        error: Exception | None = None,
        request: Any = None,
    ) -> None:
        """End a job, and free its row.

        Args:
            request: the engine's, if that has ended it by itself.
        """
        if request is None and (request := job.request) is not None and self.engine is not None:
            try:
                if self._fault is None:  # else it is broken, and made again soon
                    self.engine.cancel(request)
            except BaseException as failure:
                self._fault = failure  # of all rows, so it waits until this job has been seen to
        if request is not None:
            self._count_drafts(job, 0)
        job.request = None
        for line in (self.waiting, self.running):
            if job in line:
                line.remove(job)
        self.on_end()
        job.ended_at = self.clock()
        result = getattr(request, "result", None)
        end = Finished(reason, job.usage(request), error, result)
        self._tell(job, end)
        self._record("ended", job, end)
        # Whoever awaited the job may hold it for long, and its sink holds whoever awaited it.
        job.inputs, job.events = {}, nobody

    def _tell(self, job: GenerationJob, event: Event) -> None:
        if job.is_lost:
            return
        try:
            job.events(event)
        except Exception:
            job.is_lost = True
            logger.info("request %s can't be told anything any more; it is cancelled", job.id)

    def _record(self, name: str, *values: Any) -> None:
        try:
            if (hook := getattr(self.listener, name, None)) is not None:
                hook(*values)
        except Exception:
            logger.exception("metrics of a request are lost")


def _reason(request: Any, job: GenerationJob) -> Reason:
    """Returns why a request ended by itself."""
    reason = getattr(request, "finish_reason", None)
    if reason in ("stop", "length"):
        return reason
    return "stop" if job.output and job.output[-1] in job.stop_token_ids else "length"
