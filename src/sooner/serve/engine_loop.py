"""One turn of the engine after the other: deadlines, the scheduler's plan, a step, what came of it.

No thread and no waiting: `EngineThread` turns it, and tests do with a clock of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ..errors import SoonerError, is_device_fault, is_out_of_memory
from .jobs import (
    EngineLike,
    Event,
    Finished,
    GenerationJob,
    JobTimes,
    JobUsage,
    Reason,
    RequestLike,
    TokenLogprob,
    Tokens,
    nobody,
)
from .pending import PendingJob, seed_of
from .scheduler import Scheduler, SchedulerLimits

logger = logging.getLogger("sooner.serve")

Clock = Callable[[], float]
OptionsOf = Callable[[GenerationJob, Callable[[], int]], Mapping[str, Any]]
"""The options of `Engine.add_request` for a job, but for its inputs, seed and priority; the second
argument counts the ids that the job has committed."""


class EngineDiedError(Exception):
    """The accelerator failed; nothing more can be computed in this process."""


class StepFailedError(Exception):
    """A step raised what would be a request's own fault elsewhere; whose it was is not known."""


class LoopListener(Protocol):
    """Hears what happens to jobs, for metrics. Its errors are logged and no job's."""

    def begun(self, job: GenerationJob, waited: float) -> None: ...

    def committed(self, job: GenerationJob, tokens: int, seconds: float, is_first: bool) -> None:
        """New tokens, `seconds` after the ones before; the first ones after the job arrived."""

    def drafted(self, job: GenerationJob, drafts: int, tokens: int, accepted: int) -> None:
        """Rounds verified so many drafts of a job, `tokens` draft tokens in all (all nodes of
        trees), and `accepted` of them; told when the round has committed."""

    def preempted(self, job: GenerationJob) -> None: ...

    def ended(self, job: GenerationJob, end: Finished, times: JobTimes) -> None: ...


class EngineLoop:
    """Jobs in, steps of the engine, events out; each job ends exactly once.

    Args:
        build: makes the engine, and another one when a step failed.
        limits: what it has room for.
        options_of: a job's options of `Engine.add_request`.
        clock: seconds, of any origin, the same as in `GenerationJob.arrived`.
        listener: hears of everything, for metrics.
        on_end: called when a job has ended, before it is told.

    Attributes:
        engine: `None` until `open`, and after a failure that could not be repaired.
    """

    def __init__(
        self,
        build: Callable[[], EngineLike],
        limits: SchedulerLimits,
        options_of: OptionsOf,
        clock: Clock,
        listener: LoopListener | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.build, self.options_of, self.clock, self.listener = build, options_of, clock, listener
        self.scheduler = Scheduler(limits)
        self.on_end = on_end
        self.engine: EngineLike | None = None
        self._fault: BaseException | None = None
        self._pending: dict[GenerationJob, PendingJob] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no job is held."""
        return not self._pending

    def open(self) -> None:
        """Make the engine.

        Raises:
            Exception: what its making raises.
        """
        self.engine = self.build()

    def add(self, job: GenerationJob) -> None:
        """Put a job in line."""
        self._pending[job] = PendingJob(
            self.scheduler.add(job), seed_of(job), reported_at=job.arrived
        )

    def cancel(self, job: GenerationJob) -> None:
        """End a job before its time, unless it has ended; its row is free when this returns."""
        if (pending := self._pending.get(job)) is not None:
            self._end(pending, "cancelled")
        self._mend()

    def close(self, error: Exception) -> None:
        """End every job with an error, and let go of the engine."""
        for pending in list(self._pending.values()):
            self._end(pending, "error", error)
        engine, self.engine, self._fault = self.engine, None, None
        _close(engine)

    def turn(self) -> None:
        """End what is too late, plan, and let the engine take a step.

        Raises:
            EngineDiedError: the accelerator failed. Jobs are still held: `close` tells them.
            Exception: the engine failed, its jobs were told, and it could not be made again.
        """
        for ticket in self.scheduler.expired(self.clock()):
            self._end(self._pending[ticket.job], "deadline")
        self._mend()
        # A batch of its own for each: those that would wait in the engine stay in line instead.
        self.scheduler.is_serial = bool(getattr(self.engine, "alone", None))
        for ticket in self.scheduler.plan():
            self._admit(self._pending[ticket.job])
        if self.scheduler.running:
            self._step()
        for pending in list(self._pending.values()):
            if pending.failure is not None:
                self._end(pending, "error", pending.failure)
            elif pending.is_lost:
                self._end(pending, "cancelled")
        self._mend()

    def _step(self) -> None:
        assert self.engine is not None
        started = self.clock()
        self.engine.queued = len(self.scheduler.waiting)
        try:
            ended = self.engine.step()
        except BaseException as error:
            self._fault = error
            self._mend()
            return
        for ticket in self.scheduler.running:
            self._follow(self._pending[ticket.job], started)
        requests = {id(request): request for request in ended}
        for ticket in list(self.scheduler.running):
            pending = self._pending[ticket.job]
            request = requests.get(id(pending.request))
            if request is None:
                continue
            pending.request = None  # its row is free
            self._count(pending, request)
            if request.error is not None:
                self._raise_if_dead(request.error)
                self._end(pending, "error", request.error)
            else:
                self._end(pending, _reason(request, pending))
        if self.scheduler.running and self.engine.is_idle:
            self._fault = RuntimeError("the engine lost requests")
            self._mend()

    def _follow(self, pending: PendingJob, started: float) -> None:
        """See whether the step that began at `started` gave a job a row, or took it."""
        ticket, request = pending.ticket, pending.request
        ticket.is_waiting = getattr(request, "is_waiting", False)
        if not (pending.has_begun or ticket.is_waiting):
            pending.has_begun = True
            self._record("begun", pending.job, started - pending.job.arrived)
        if (lost := getattr(request, "num_preemptions", 0)) > pending.preemptions:
            pending.preemptions = lost
            self.scheduler.preempted(ticket)
            self._record("preempted", pending.job)

    def _mend(self) -> None:
        """If the engine raised, what it held is lost, and who waits goes on with another one."""
        error, self._fault = self._fault, None
        if error is None:
            return
        self._raise_if_dead(error)
        lost = [self._pending[ticket.job] for ticket in self.scheduler.running]
        names = ", ".join(pending.job.id for pending in lost)
        logger.error("the engine failed; requests lost: %s", names or "none", exc_info=error)
        engine, self.engine = self.engine, None
        _close(engine)
        for pending in lost:
            pending.request = None
            self._end(pending, "error", _blameless(error))
        self.open()

    def _raise_if_dead(self, error: BaseException) -> None:
        if is_device_fault(error):
            self.engine = None  # whatever is asked of it now may hang
            raise EngineDiedError(str(error)) from error

    def _admit(self, pending: PendingJob) -> None:
        assert self.engine is not None
        job, ticket = pending.job, pending.ticket

        def tell(row: int, ids: list[int], drafted: int) -> None:
            self._commit(pending, list(ids), drafted)

        try:
            pending.request = self.engine.add_request(
                job.inputs, seed=pending.seed, on_tokens=tell, priority=ticket.due,
                **self.options_of(job, lambda: len(ticket.output)),
            )  # fmt: skip
        except Exception as error:
            self._raise_if_dead(error)
            self._end(pending, "error", error)

    def _commit(self, pending: PendingJob, ids: list[int], drafted: int) -> None:
        """The engine committed tokens of a row, within a step."""
        ticket, now = pending.ticket, self.clock()
        if pending.failure is not None:
            return
        try:
            if pending.job.grammar is not None:
                pending.job.grammar.accept(ids)
            event = Tokens(ids, drafted, _logprobs(pending, len(ids)))
        except Exception as error:
            pending.failure = error
            return
        is_first = pending.first is None
        if is_first:
            pending.first = now
        if not ticket.is_prefilling:
            pending.accepted[drafted] += 1
            self._count_drafts(pending, pending.request, drafted)
        self.scheduler.prefilled(ticket)
        ticket.output += ids
        self._record("committed", pending.job, len(ids), now - pending.reported_at, is_first)
        pending.reported_at = now
        self._tell(pending, event)

    def _leave(self, pending: PendingJob) -> None:
        """Free the row of a job, if it has one."""
        request, pending.request = pending.request, None
        if request is not None and self.engine is not None:
            try:
                self.engine.cancel(request)
            except BaseException as error:
                self._fault = error  # of all rows, so it waits until this job has been seen to
            self._count(pending, request)

    def _count(self, pending: PendingJob, request: RequestLike) -> None:
        """Add what a request that leaves the engine has taken."""
        self._count_drafts(pending, request, 0)
        pending.cached += getattr(request, "cached_tokens", 0)
        pending.mode = getattr(request, "mode", pending.mode)

    def _count_drafts(
        self, pending: PendingJob, request: RequestLike | None, accepted: int
    ) -> None:
        """Take over what was verified since the last time; `accepted` tokens of that were right."""
        drafts = getattr(request, "num_drafts", 0) - pending.drafts
        tokens = getattr(request, "num_draft_tokens", 0) - pending.drafted
        pending.drafts += drafts
        pending.drafted += tokens
        if drafts:
            self._record("drafted", pending.job, drafts, tokens, accepted)

    def _end(self, active: PendingJob, reason: Reason, error: Exception | None = None) -> None:
        self._leave(active)
        self.scheduler.end(active.ticket)
        del self._pending[active.job]
        self.on_end()
        end = Finished(reason, self._usage(active), error)
        self._tell(active, end)
        self._record("ended", active.job, end, active.times(self.clock()))
        # Whoever awaited the job may hold it for long, and its sink holds whoever awaited it.
        active.job.inputs, active.job.events = {}, nobody

    def _usage(self, pending: PendingJob) -> JobUsage:
        stats = pending.stats()
        expected = len(pending.job.prediction or ())
        right = min(stats.num_accepted_tokens, expected)
        count = len(pending.ticket.output)
        return JobUsage(
            pending.job.prompt_tokens, count, pending.cached, right, expected - right, stats
        )

    def _tell(self, pending: PendingJob, event: Event) -> None:
        if pending.is_lost:
            return
        try:
            pending.job.events(event)
        except Exception:
            pending.is_lost = True
            logger.info(
                "request %s can't be told anything any more; it is cancelled", pending.job.id
            )

    def _record(self, name: str, *values: Any) -> None:
        try:
            if self.listener is not None:
                getattr(self.listener, name)(*values)
        except Exception:
            logger.exception("metrics of a request are lost")


def _reason(request: RequestLike, pending: PendingJob) -> Reason:
    """Returns why a request ended by itself."""
    reason = getattr(request, "finish_reason", None)
    if reason in ("stop", "length"):
        return reason
    tokens = pending.ticket.output
    return "stop" if tokens and tokens[-1] in pending.job.stop_token_ids else "length"


def _logprobs(pending: PendingJob, tokens: int) -> list[TokenLogprob] | None:
    """Returns log-probabilities of the last tokens of a row, if its job asked for them."""
    if pending.job.sampling.logprobs is None:
        return None
    entries = getattr(pending.request, "logprobs", [[]])[0][-tokens:]
    return [TokenLogprob(entry.token, entry.logprob, tuple(entry.top)) for entry in entries]


def _blameless(error: BaseException) -> Exception:
    """Returns what the jobs of a failed step are told: most of them have nothing to do with it."""
    if isinstance(error, Exception) and (
        is_out_of_memory(error) or not isinstance(error, SoonerError)
    ):
        return error
    failure = StepFailedError(f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _close(engine: Any) -> None:
    """Let go of what a failed engine holds, as far as it still can."""
    try:
        if hasattr(engine, "close"):
            engine.close()
    except Exception:
        logger.info("the failed engine could not be closed", exc_info=True)
