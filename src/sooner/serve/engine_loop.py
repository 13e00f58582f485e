"""One turn of the engine after the other: deadlines, the scheduler's plan, a step, what came of it.

No thread and no waiting: `EngineThread` turns it, and tests do with a clock of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ..errors import SoonerError, is_device_fault, is_out_of_memory
from .held import Held, seed_of
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
from .scheduler import Scheduler, SchedulerLimits

logger = logging.getLogger("sooner.serve")

Clock = Callable[[], float]
OptionsOf = Callable[[GenerationJob, Callable[[], int]], Mapping[str, Any]]
"""What `Engine.admit` is told of a job, but for its inputs, seed and priority; it may ask how many
ids the job has committed."""


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
        options_of: a job's options of `Engine.admit`.
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
        self._held: dict[GenerationJob, Held] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no job is held."""
        return not self._held

    def open(self) -> None:
        """Make the engine.

        Raises:
            Exception: what its making raises.
        """
        self.engine = self.build()

    def add(self, job: GenerationJob) -> None:
        """Put a job in line."""
        self._held[job] = Held(self.scheduler.add(job), seed_of(job), told=job.arrived)

    def cancel(self, job: GenerationJob) -> None:
        """End a job before its time, unless it has ended; its row is free when this returns."""
        if (held := self._held.get(job)) is not None:
            self._end(held, "cancelled")
        self._mend()

    def close(self, error: Exception) -> None:
        """End every job with an error, and let go of the engine."""
        for held in list(self._held.values()):
            self._end(held, "error", error)
        engine, self.engine, self._fault = self.engine, None, None
        _close(engine)

    def turn(self) -> None:
        """End what is too late, plan, and let the engine take a step.

        Raises:
            EngineDiedError: the accelerator failed. Jobs are still held: `close` tells them.
            Exception: the engine failed, its jobs were told, and it could not be made again.
        """
        for ticket in self.scheduler.expired(self.clock()):
            self._end(self._held[ticket.job], "deadline")
        self._mend()
        # A batch of its own for each: those that would wait in the engine stay in line instead.
        self.scheduler.is_one_by_one = bool(getattr(self.engine, "alone", None))
        for ticket in self.scheduler.plan():
            self._admit(self._held[ticket.job])
        if self.scheduler.running:
            self._step()
        for held in list(self._held.values()):
            if held.failure is not None:
                self._end(held, "error", held.failure)
            elif held.is_lost:
                self._end(held, "cancelled")
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
            self._follow(self._held[ticket.job], started)
        requests = {id(request): request for request in ended}
        for ticket in list(self.scheduler.running):
            held = self._held[ticket.job]
            request = requests.get(id(held.request))
            if request is None:
                continue
            held.request = None  # its row is free
            self._count(held, request)
            if request.error is not None:
                self._raise_if_dead(request.error)
                self._end(held, "error", request.error)
            else:
                self._end(held, _reason(request, held))
        if self.scheduler.running and self.engine.is_idle:
            self._fault = RuntimeError("the engine lost requests")
            self._mend()

    def _follow(self, held: Held, started: float) -> None:
        """See whether the step that began at `started` gave a job a row, or took it."""
        ticket, request = held.ticket, held.request
        ticket.is_waiting = getattr(request, "is_waiting", False)
        if not (held.has_begun or ticket.is_waiting):
            held.has_begun = True
            self._hear("begun", held.job, started - held.job.arrived)
        if (lost := getattr(request, "num_preemptions", 0)) > held.preemptions:
            held.preemptions = lost
            self.scheduler.preempted(ticket)
            self._hear("preempted", held.job)

    def _mend(self) -> None:
        """If the engine raised, what it held is lost, and who waits goes on with another one."""
        error, self._fault = self._fault, None
        if error is None:
            return
        self._raise_if_dead(error)
        lost = [self._held[ticket.job] for ticket in self.scheduler.running]
        names = ", ".join(held.job.id for held in lost)
        logger.error("the engine failed; requests lost: %s", names or "none", exc_info=error)
        engine, self.engine = self.engine, None
        _close(engine)
        for held in lost:
            held.request = None
            self._end(held, "error", _blameless(error))
        self.open()

    def _raise_if_dead(self, error: BaseException) -> None:
        if is_device_fault(error):
            self.engine = None  # whatever is asked of it now may hang
            raise EngineDiedError(str(error)) from error

    def _admit(self, held: Held) -> None:
        assert self.engine is not None
        job, ticket = held.job, held.ticket

        def tell(row: int, ids: list[int], drafted: int) -> None:
            self._commit(held, list(ids), drafted)

        try:
            held.request = self.engine.admit(
                job.inputs, seed=held.seed, on_tokens=tell, priority=ticket.due,
                **self.options_of(job, lambda: len(ticket.said)),
            )  # fmt: skip
        except Exception as error:
            self._raise_if_dead(error)
            self._end(held, "error", error)

    def _commit(self, held: Held, ids: list[int], drafted: int) -> None:
        """The engine committed tokens of a row, within a step."""
        ticket, now = held.ticket, self.clock()
        if held.failure is not None:
            return
        try:
            if held.job.grammar is not None:
                held.job.grammar.accept(ids)
            event = Tokens(ids, drafted, _logprobs(held, len(ids)))
        except Exception as error:
            held.failure = error
            return
        is_first = held.first is None
        if is_first:
            held.first = now
        if not ticket.is_prefilling:
            held.accepted[drafted] += 1
            self._count_drafts(held, held.request, drafted)
        self.scheduler.prefilled(ticket)
        ticket.said += ids
        self._hear("committed", held.job, len(ids), now - held.told, is_first)
        held.told = now
        self._tell(held, event)

    def _leave(self, held: Held) -> None:
        """Free the row of a job, if it has one."""
        request, held.request = held.request, None
        if request is not None and self.engine is not None:
            try:
                self.engine.cancel(request)
            except BaseException as error:
                self._fault = error  # of all rows, so it waits until this job has been seen to
            self._count(held, request)

    def _count(self, held: Held, request: RequestLike) -> None:
        """Add what a request that leaves the engine has taken."""
        self._count_drafts(held, request, 0)
        held.cached += getattr(request, "cached_tokens", 0)
        held.mode = getattr(request, "mode", held.mode)

    def _count_drafts(self, held: Held, request: RequestLike | None, accepted: int) -> None:
        """Take over what was verified since the last time; `accepted` tokens of that were right."""
        drafts = getattr(request, "num_drafts", 0) - held.drafts
        tokens = getattr(request, "num_draft_tokens", 0) - held.drafted
        held.drafts += drafts
        held.drafted += tokens
        if drafts:
            self._hear("drafted", held.job, drafts, tokens, accepted)

    def _end(self, held: Held, reason: Reason, error: Exception | None = None) -> None:
        self._leave(held)
        self.scheduler.end(held.ticket)
        del self._held[held.job]
        self.on_end()
        end = Finished(reason, self._usage(held), error)
        self._tell(held, end)
        self._hear("ended", held.job, end, held.times(self.clock()))
        # Whoever awaited the job may hold it for long, and its sink holds whoever awaited it.
        held.job.inputs, held.job.events = {}, nobody

    def _usage(self, held: Held) -> JobUsage:
        stats = held.stats()
        expected = len(held.job.prediction or ())
        right = min(stats.num_accepted_tokens, expected)
        said = len(held.ticket.said)
        return JobUsage(held.job.prompt_tokens, said, held.cached, right, expected - right, stats)

    def _tell(self, held: Held, event: Event) -> None:
        if held.is_lost:
            return
        try:
            held.job.events(event)
        except Exception:
            held.is_lost = True
            logger.info("request %s can't be told anything any more; it is cancelled", held.job.id)

    def _hear(self, name: str, *told: Any) -> None:
        try:
            if self.listener is not None:
                getattr(self.listener, name)(*told)
        except Exception:
            logger.exception("metrics of a request are lost")


def _reason(request: RequestLike, held: Held) -> Reason:
    """Returns why a request ended by itself."""
    given = getattr(request, "finish_reason", None)
    if given in ("stop", "length"):
        return given
    said = held.ticket.said
    return "stop" if said and said[-1] in held.job.stop_token_ids else "length"


def _logprobs(held: Held, tokens: int) -> list[TokenLogprob] | None:
    """Of the last tokens of a row, if its job asked for them."""
    if held.job.sampling.logprobs is None:
        return None
    told = getattr(held.request, "logprobs", [[]])[0][-tokens:]
    return [TokenLogprob(one.token, one.logprob, tuple(one.top)) for one in told]


def _blameless(error: BaseException) -> Exception:
    """Returns what the jobs of a failed step are told: most of them have nothing to do with it."""
    if isinstance(error, Exception) and (
        is_out_of_memory(error) or not isinstance(error, SoonerError)
    ):
        return error
    told = StepFailedError(f"{type(error).__name__}: {error}")
    told.__cause__ = error
    return told


def _close(engine: Any) -> None:
    """Let go of what a failed engine holds, as far as it still can."""
    try:
        if hasattr(engine, "close"):
            engine.close()
    except Exception:
        logger.info("the failed engine could not be closed", exc_info=True)
