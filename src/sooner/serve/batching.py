"""Dynamic batching: requests of several robots become ragged batches, run by one worker thread.

While one batch is computed the next one collects. Between two, the worker waits a moment for as
many requests as the last batch had: robots that got answers together ask again together.

The loop is supervised. If it raises, every request that it holds is failed with a reason, new ones
are refused, and the loop tries itself on a request of its own until that works again.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Literal, Protocol

from ..errors import SoonerError
from ..tasks.act.observation import Observation
from .job import ActJob, Answer
from .refusal import RefusedError, failed, stopping, too_late
from .settings import ServeSettings


class ModelThread:
    """Runs calls one after the other, in the order in which they were submitted.

    An executor's threads are joined when the process exits, so a model that hangs would keep the
    process alive; this one is a daemon.
    """

    def __init__(self, name: str = "sooner-act") -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]
        self._calls = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Queue a call; the future has its result, or the exception that it raised."""
        future: Future[Any] = Future()
        self._calls.put((future, call))
        return future

    def close(self) -> None:
        """End after the calls that are queued; returns at once."""
        self._calls.put(None)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except Exception as error:
                future.set_exception(error)
            except BaseException as error:
                # `SystemExit` from a policy would end the server's event loop.
                future.set_exception(RuntimeError(f"the policy raised {type(error).__name__}"))


logger = logging.getLogger("sooner.serve")

Clock = Callable[[], float]

State = Literal["ready", "failed", "stopping"]

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0

"""Seconds before the loop tries itself after a failure; doubled as long as that fails."""


class ServedPolicy(Protocol):
    """What a server needs of a policy."""

    pace: Any

    def act(self, observations: Sequence[Observation], *, method: str | None) -> list[Any]: ...

    def settle(self, name: str | None, rows: int) -> str: ...

    def quickest_exact(self, rows: int) -> str: ...


class Batcher:
    """Owns the policy: nothing else may run it while a server does.

    Args:
        policy: acts on several observations at once; it is called in one thread only.
        settings: limits, and how long a batch waits for further requests.
        on_batch: told the actions of every batch.
        on_wait: told how many seconds each request waited, when it leaves the queue.
        clock: seconds, of any origin.

    Attributes:
        waiting, running: requests that are held; one that is taken is in `running` before it
            leaves `waiting`, so that whatever fails, none is forgotten.
        fault: name of the error that the loop failed with, until it works again.
    """

    def __init__(
        self,
        policy: ServedPolicy,
        settings: ServeSettings,
        on_batch: Callable[[list[Any]], None] = lambda actions: None,
        on_wait: Callable[[float], None] = lambda seconds: None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.policy, self.settings = policy, settings
        self.on_batch, self.on_wait, self.clock = on_batch, on_wait, clock
        self.waiting: list[ActJob] = []
        self.running: list[ActJob] = []
        self.is_closing = False
        self.fault: str | None = None
        self._sample: Observation | None = None
        self._company = 1  # requests queued or running when the last batch ended
        self._changed, self._hurried = asyncio.Event(), asyncio.Event()
        self._thread = ModelThread()
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        """Whether requests are taken, and if not, why."""
        if self.is_closing:
            return "stopping"
        return "ready" if self.fault is None else "failed"

    def start(self) -> None:
        """Begin to work; a running event loop is needed."""
        self._task = asyncio.get_running_loop().create_task(self._supervise())

    async def close(self) -> None:
        """Take nothing new, answer what is under way, and end.

        What is not answered after the settings' `grace_seconds` is refused; a call of the policy
        that still runs is left behind.
        """
        self.is_closing = True
        self._changed.set()
        task, self._task = self._task, None
        if task is not None:
            hurried = asyncio.ensure_future(self._hurried.wait())
            await asyncio.wait(
                {task, hurried},
                timeout=self.settings.grace_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            hurried.cancel()
            task.cancel()  # does nothing if it is done
            self._fail_pending(stopping())
            await asyncio.wait({task})
        self._thread.close()

    def hurry(self) -> None:
        """End the grace of a `close` that waits."""
        self._hurried.set()

    async def warm(self, observation: Observation, methods: Sequence[str]) -> None:
        """Run each method twice, so that the first request finds everything measured.

        Raises:
            Exception: what the policy raised.
        """
        self._sample = observation
        for method in methods:
            for _ in range(2):
                [answer] = await self._on_thread([observation], method)
                if isinstance(answer, Exception):
                    raise answer

    def submit(self, observation: Observation, deadline: float | None, name: str = "") -> ActJob:
        """Queue a request; `deadline` is in the clock's seconds, `name` is for the log.

        Raises:
            RefusedError: 503 if the server is going down, or has failed.
        """
        if (refused := self.refusal()) is not None:
            raise refused
        job = self._job(observation, deadline, name)
        if deadline is not None:
            loop = asyncio.get_running_loop()
            job.timer = loop.call_later(max(deadline - job.arrived, 0), self._expire, job)
        self.waiting.append(job)
        self._changed.set()
        return job

    def refusal(self) -> RefusedError | None:
        """Returns why no request is taken, if none is."""
        if self.is_closing:
            return stopping()
        return None if self.fault is None else failed(self.fault)

    def drop(self, job: ActJob) -> None:
        """The client left: forget the request; a batch that is being computed is not stopped."""
        if job in self.waiting:
            self.waiting.remove(job)
        job.settle()
        job.future.cancel()

    def seconds_to_room(self) -> float:
        """Returns what the requests before a new one are expected to take."""
        rows = self.settings.max_batch
        batches = 1 + len(self.waiting) // rows
        method = self.settings.method or "auto"
        names = ("plain", "strict", "relaxed") if method == "auto" else (method,)
        known = [self.policy.pace.expected(name, rows) for name in names]
        return batches * min((seconds for seconds in known if seconds is not None), default=1.0)

    async def _supervise(self) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                if self.fault is not None:
                    await self._try_itself()
                    logger.warning("the policy server works again after %s", self.fault)
                    self.fault, pause = None, FIRST_PAUSE
                return await self._serve()
            except Exception as error:
                self.fault = type(error).__name__
                names = ", ".join(job.name for job in (*self.running, *self.waiting) if job.name)
                logger.exception("the policy server failed; requests held: %s", names or "none")
                self._fail_pending(failed(self.fault))
            if await self._is_closing_within(pause):
                return None
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _serve(self) -> None:
        while True:
            while not self.waiting and not self.is_closing:
                self._changed.clear()
                await self._changed.wait()
            if not self.waiting:
                return
            await self._gather()
            batch, method = self._take()
            if batch and await self._compute(batch, method):
                await self._try_itself()

    async def _try_itself(self) -> None:
        """Act on the warm-up observation, by the same path as requests.

        Tells a policy that one request broke from one that is broken.

        Raises:
            Exception: what fails.
        """
        if self._sample is None:
            return
        job = self._job(self._sample, None)
        queue, self.waiting = self.waiting, [job]
        try:
            batch, method = self._take()
        finally:
            self.waiting = queue
        await self._compute(batch, method)
        job.future.result()

    async def _is_closing_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                while not self.is_closing:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        return self.is_closing

    async def _gather(self) -> None:
        """Wait for as many requests as came in the last round, but not for long."""
        target = min(self._company, self.settings.max_batch)
        until = self.clock() + self.settings.window_ms / 1e3
        while len(self.waiting) < target and not self.is_closing:
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), until - self.clock())
            except TimeoutError:
                return

    def _take(self) -> tuple[list[ActJob], str]:
        """Returns the next batch and its method: the most urgent ones, as many as keep the first
        deadline, decoded as set; if even one would be late, by what is exact and quicker."""
        ready = sorted(self.waiting, key=lambda job: job.urgency)[: self.settings.max_batch]
        if not ready:
            return [], ""
        method = self.policy.settle(self.settings.method, len(ready))
        size, method = self._fitting(ready, method)
        self.running = ready[:size]
        for job in self.running:
            self.waiting.remove(job)
            job.settle()
        return self.running, method

    def _fitting(self, ready: list[ActJob], method: str) -> tuple[int, str]:
        now = self.clock()
        for size in range(len(ready), 0, -1):
            deadlines = [job.deadline for job in ready[:size] if job.deadline is not None]
            if not deadlines:
                return size, method
            for name in (method, self.policy.quickest_exact(size)):
                seconds = self.policy.pace.expected(name, size)
                if seconds is None or now + seconds <= min(deadlines):
                    return size, name
        return 1, self._quicker(method, self.policy.quickest_exact(1))

    def _quicker(self, method: str, other: str) -> str:
        ours, other_seconds = (self.policy.pace.expected(name, 1) for name in (method, other))
        return (
            other
            if ours is not None and other_seconds is not None and other_seconds < ours
            else method
        )

    async def _compute(self, batch: list[ActJob], method: str) -> bool:
        """Answer a batch; whether the policy raised what it should not."""
        began = self.clock()
        answers = await self._on_thread([job.observation for job in batch], method)
        ended = self.clock()
        self._company = len(batch) + len(self.waiting)
        for job, answer in zip(batch, answers, strict=True):
            if job.future.done():  # dropped
                continue
            if isinstance(answer, Exception):
                job.future.set_exception(answer)
                continue
            is_late = job.deadline is not None and ended > job.deadline
            queued, computed = began - job.arrived, ended - began
            job.future.set_result(Answer(answer, queued, computed, len(batch), is_late))
        self.running = []
        self._tell([began - job.arrived for job in batch], answers)
        return any(
            isinstance(answer, Exception) and not isinstance(answer, SoonerError)
            for answer in answers
        )

    def _tell(self, waits: list[float], answers: list[Any]) -> None:
        """Listeners come after the answers, and none of their errors is a request's."""
        try:
            for seconds in waits:
                self.on_wait(seconds)
            self.on_batch([answer for answer in answers if not isinstance(answer, Exception)])
        except Exception:
            logger.exception("metrics of a batch are lost")

    async def _on_thread(self, observations: list[Observation], method: str) -> list[Any]:
        return await asyncio.wrap_future(
            self._thread.submit(lambda: self._act(observations, method))
        )

    def _act(self, observations: list[Observation], method: str) -> list[Any]:
        """Returns actions, or in their place what went wrong; one bad request spoils no other."""
        try:
            actions = list(self.policy.act(observations, method=method))
            if len(actions) != len(observations):
                raise RuntimeError(f"{len(actions)} actions for {len(observations)} observations")
            return actions
        except Exception as error:
            if len(observations) == 1 or not isinstance(error, SoonerError):
                return [error] * len(observations)
            return [self._act([observation], method)[0] for observation in observations]

    def _job(self, observation: Observation, deadline: float | None, name: str = "") -> ActJob:
        future = asyncio.get_running_loop().create_future()
        return ActJob(observation, self.clock(), deadline, future, name)

    def _expire(self, job: ActJob) -> None:
        """The deadline of a job passed while it waited."""
        if job in self.waiting and not job.future.done():
            self.waiting.remove(job)
            waited = self.clock() - job.arrived
            job.future.set_exception(too_late(waited))
            self._tell([waited], [])

    def _fail_pending(self, reason: RefusedError) -> None:
        jobs = [*self.running, *self.waiting]
        self.running, self.waiting = [], []
        for job in jobs:
            job.settle()
            if not job.future.done():
                job.future.set_exception(reason)
                job.future.exception()  # seen, even if nobody waits for it
