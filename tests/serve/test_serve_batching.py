"""Who shares a batch, who goes first, and what happens when time is short."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from serve.robots import SlowPolicy, until
from sooner.serve.batching import Batcher
from sooner.serve.job import ActJob
from sooner.serve.refusal import RefusedError
from sooner.serve.settings import ServeSettings
from sooner.tasks.act import Observation

PICTURE = np.zeros((2, 2, 3), np.uint8)


def seen(number: int | str) -> Observation:
    return Observation(PICTURE, str(number))


@asynccontextmanager
async def batching(policy: SlowPolicy, **settings: Any) -> AsyncIterator[Batcher]:
    batcher = Batcher(policy, ServeSettings(**settings))
    batcher.start()
    yield batcher
    policy.go.set()
    await batcher.close()


def numbers(answers: list[Any]) -> list[float]:
    return [float(answer.action.values[0, 0]) for answer in answers]


def test_a_batch_waits_for_as_many_as_the_last_round_had() -> None:
    async def scenario() -> None:
        policy = SlowPolicy()
        policy.go.clear()
        # The window never runs out: only company may end the wait.
        async with batching(policy, window_ms=60_000) as batcher:
            jobs = [batcher.submit(seen(0), None)]
            await until(policy.began.is_set)
            jobs += [batcher.submit(seen(number), None) for number in (1, 2)]
            policy.go.set()
            await jobs[0].future  # three were under way as it ended
            jobs.append(batcher.submit(seen(3), None))
            await asyncio.gather(*(job.future for job in jobs))
        assert [len(batch) for batch in policy.batches] == [1, 3]

    asyncio.run(scenario())


def test_urgent_requests_go_first() -> None:
    async def scenario() -> None:
        policy = SlowPolicy()
        policy.go.clear()
        async with batching(policy, window_ms=0, max_batch=2) as batcher:
            first = batcher.submit(seen(0), None)
            await until(policy.began.is_set)
            now = batcher.clock()
            times = (None, now + 900, now + 5, now + 700)
            jobs = [batcher.submit(seen(i + 1), time) for i, time in enumerate(times)]
            policy.go.set()
            await asyncio.gather(first.future, *(job.future for job in jobs))
        # A request without a deadline has waited long enough after ten seconds.
        assert policy.batches == [["0"], ["3", "1"], ["4", "2"]]

    asyncio.run(scenario())


def test_a_deadline_that_passes_in_the_queue_costs_nothing() -> None:
    async def scenario() -> None:
        policy = SlowPolicy()
        policy.go.clear()
        async with batching(policy) as batcher:
            first = batcher.submit(seen(0), None)
            await until(policy.began.is_set)
            late = batcher.submit(seen(1), batcher.clock() + 0.01)
            with pytest.raises(RefusedError, match="nothing was computed") as raised:
                await late.future
            assert raised.value.status == 504
            assert batcher.waiting == []
            policy.go.set()
            await first.future
        assert policy.batches == [["0"]]

    asyncio.run(scenario())


def test_a_bad_request_does_not_affect_the_rest() -> None:
    async def scenario() -> None:
        policy = SlowPolicy()
        policy.go.clear()
        async with batching(policy, window_ms=0) as batcher:
            jobs = [batcher.submit(seen(0), None)]
            await until(policy.began.is_set)
            jobs += [batcher.submit(seen(text), None) for text in ("1", "refuse", "2")]
            policy.go.set()
            answers = await asyncio.gather(*(job.future for job in jobs), return_exceptions=True)
        assert str(answers.pop(2)) == "this one can't be done"
        assert numbers(answers) == [0, 1, 2]

    asyncio.run(scenario())


class Known(SlowPolicy):
    """A policy with measured times."""

    def __init__(self, **seconds: float) -> None:
        super().__init__()
        for method, each in seconds.items():
            for rows in (1, 2, 4):
                self.pace.add(method, rows, rows * each)

    def quickest_exact(self, rows: int) -> str:
        return "strict"


@pytest.mark.parametrize(
    ("deadlines", "size", "method"),
    [
        ([None] * 4, 4, "relaxed"),
        ([9.0, None, None, None], 4, "relaxed"),
        ([3.5, None, None, None], 4, "strict"),  # four take 4 s relaxed, 2 s exactly
        ([1.5, 9.0, 9.0, 9.0], 2, "strict"),  # four take too long, two do not
        ([0.7, 9.0, 9.0, 9.0], 1, "strict"),
        ([0.1, 9.0, 9.0, 9.0], 1, "strict"),  # hopeless: the quickest there is
    ],
)
def test_a_batch_is_as_large_and_as_relaxed_as_the_first_deadline_allows(
    deadlines: list[float | None], size: int, method: str
) -> None:
    async def scenario() -> tuple[int, str]:
        policy = Known(relaxed=1.0, strict=0.5)
        batcher = Batcher(policy, ServeSettings(), clock=lambda: 0.0)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        jobs = [ActJob(seen(0), 0.0, deadline, future) for deadline in deadlines]
        return batcher._fitting(jobs, "relaxed")

    assert asyncio.run(scenario()) == (size, method)


def test_who_comes_too_often_learns_how_long_it_takes() -> None:
    async def scenario() -> float:
        policy = Known(relaxed=1.0)
        batcher = Batcher(policy, ServeSettings(max_batch=2, method="relaxed"))
        batcher.waiting = [None] * 5  # type: ignore[list-item]
        return batcher.seconds_to_room()

    assert asyncio.run(scenario()) == 6.0
