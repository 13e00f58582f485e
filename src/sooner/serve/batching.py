"""Requests of several robots become ragged batches, one after the other, in one worker thread.

While one batch is computed the next one collects. Between two, the worker waits a moment for as
many requests as the last round had: robots that were answered together ask again together.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from ..errors import SoonerError
from ..tasks.act.observation import Observation
from .job import Answer, Job
from .refusal import stopping, too_late
from .settings import ServeSettings

Clock = Callable[[], float]


class Actor(Protocol):
    """What a server needs of a policy."""

    pace: Any

    def act(self, observations: Sequence[Observation], *, method: str | None) -> list[Any]: ...

    def settle(self, name: str | None, rows: int) -> str: ...

    def quickest_exact(self, rows: int) -> str: ...


class Batcher:
    """Owns the policy: nothing else may run it while a server does.

    Args:
        policy: acts on several observations at once; it is called in one thread only.
        settings: limits, and how long a batch waits for company.
        on_batch: told the actions of every batch.
        clock: seconds, of any origin.
    """

    def __init__(
        self,
        policy: Actor,
        settings: ServeSettings,
        on_batch: Callable[[list[Any]], None] = lambda actions: None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.policy, self.settings = policy, settings
        self.on_batch, self.clock = on_batch, clock
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.is_closing = False
        self._company = 1  # requests that were under way when the last batch ended
        self._changed = asyncio.Event()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sooner-act")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to work; a running event loop is needed."""
        self._task = asyncio.get_running_loop().create_task(self._serve())

    async def close(self) -> None:
        """Answer what is under way, take nothing new, and end."""
        self.is_closing = True
        self._changed.set()
        if self._task is not None:
            await self._task
        self._worker.shutdown()

    async def warm(self, observation: Observation, methods: Sequence[str]) -> None:
        """Run each method twice, so that the first request finds everything measured."""
        loop = asyncio.get_running_loop()
        for method in methods:
            for _ in range(2):
                await loop.run_in_executor(self._worker, self._act, [observation], method)

    def submit(self, observation: Observation, deadline: float | None) -> Job:
        """Queue a request; `deadline` is in the clock's seconds.

        Raises:
            RefusedError: 503 if the server is going down.
        """
        if self.is_closing:
            raise stopping()
        loop = asyncio.get_running_loop()
        job = Job(observation, self.clock(), deadline, loop.create_future())
        if deadline is not None:
            job.timer = loop.call_later(max(deadline - job.arrived, 0), self._expire, job)
        self.waiting.append(job)
        self._changed.set()
        return job

    def drop(self, job: Job) -> None:
        """Nobody wants the answer any more; what is computed already can't be stopped."""
        if job in self.waiting:
            self.waiting.remove(job)
        job.settle()
        job.future.cancel()

    def seconds_to_room(self) -> float:
        """What the requests before a new one are expected to take."""
        rows = self.settings.max_batch
        batches = 1 + len(self.waiting) // rows
        method = self.settings.method or "auto"
        names = ("plain", "strict", "relaxed") if method == "auto" else (method,)
        known = [self.policy.pace.expected(name, rows) for name in names]
        return batches * min((seconds for seconds in known if seconds is not None), default=1.0)

    async def _serve(self) -> None:
        while True:
            while not self.waiting and not self.is_closing:
                self._changed.clear()
                await self._changed.wait()
            if not self.waiting:
                return
            await self._gather()
            batch, method = self._take()
            if batch:
                await self._compute(batch, method)

    async def _gather(self) -> None:
        """Wait for as many requests as came in the last round, but not for long."""
        wanted = min(self._company, self.settings.max_batch)
        until = self.clock() + self.settings.window_ms / 1e3
        while len(self.waiting) < wanted and not self.is_closing:
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), until - self.clock())
            except TimeoutError:
                return

    def _take(self) -> tuple[list[Job], str]:
        """The next batch and its method: the most urgent ones, as many as keep the first
        deadline, decoded as set; if even one would be late, by what is exact and quicker."""
        ready = sorted(self.waiting, key=lambda job: job.urgency)[: self.settings.max_batch]
        if not ready:
            return [], ""
        method = self.policy.settle(self.settings.method, len(ready))
        size, method = self._fitting(ready, method)
        batch = ready[:size]
        for job in batch:
            self.waiting.remove(job)
            job.settle()
        return batch, method

    def _fitting(self, ready: list[Job], method: str) -> tuple[int, str]:
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
        ours, theirs = (self.policy.pace.expected(name, 1) for name in (method, other))
        return other if ours is not None and theirs is not None and theirs < ours else method

    async def _compute(self, batch: list[Job], method: str) -> None:
        self.running = batch
        began = self.clock()
        observations = [job.observation for job in batch]
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._worker, self._act, observations, method)
            self.on_batch([one for one in found if not isinstance(one, Exception)])
        except Exception as error:
            found = [error] * len(batch)
        ended = self.clock()
        self.running, self._company = [], len(batch) + len(self.waiting)
        for job, one in zip(batch, found, strict=True):
            if job.future.done():  # dropped
                continue
            if isinstance(one, Exception):
                job.future.set_exception(one)
                continue
            is_late = job.deadline is not None and ended > job.deadline
            queued, computed = began - job.arrived, ended - began
            job.future.set_result(Answer(one, queued, computed, len(batch), is_late))

    def _act(self, observations: list[Observation], method: str) -> list[Any]:
        """Actions, or in their place what went wrong; one bad request spoils no other."""
        try:
            return list(self.policy.act(observations, method=method))
        except Exception as error:
            if len(observations) == 1 or not isinstance(error, SoonerError):
                return [error] * len(observations)
            return [self._act([one], method)[0] for one in observations]

    def _expire(self, job: Job) -> None:
        """The deadline of a job passed while it waited."""
        if job in self.waiting and not job.future.done():
            self.waiting.remove(job)
            job.future.set_exception(too_late(self.clock() - job.arrived))
