"""The loop over a real engine: whatever happens around a request, it says what it says alone."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest
from stub_engine import StubClock

import sooner
import tiny
from sooner.serve.engine_loop import EngineLoop
from sooner.serve.engine_options import JobOptions
from sooner.serve.following import Following
from sooner.serve.jobs import Event, Finished, GenerationJob, JobSampling, Tokens
from sooner.serve.model_engine import ModelEngine
from sooner.serve.scheduler import SchedulerLimits

SCHEDULES = 12
FAMILY = "qwen2_5_vl"
METHODS: dict[str, Any] = {
    "plain": sooner.Autoregressive,
    "prompt-lookup": sooner.PromptLookup,
    "hsd": lambda: sooner.HSD(drafts=[[]], nodes=6),
    "speculative": lambda: Following(sooner.Speculative(tiny.model(FAMILY), num_draft_tokens=3)),
}


@cache
def alone(kind: str, temperature: float, seed: int, new: int) -> list[int]:
    """What plain decoding says to a request that is alone."""
    options: dict[str, Any] = {"do_sample": temperature > 0, "eos_token_id": -1}
    if temperature:
        options["temperature"] = temperature
    inputs = tiny.inputs(FAMILY, kind)
    return sooner.generate(
        tiny.model(FAMILY), inputs, max_new_tokens=new, seed=seed, **options
    ).tokens[0]


class Ear:
    """A client."""

    def __init__(self, kind: str, temperature: float, seed: int, new: int) -> None:
        self.asked = (kind, temperature, seed, new)
        self.ids: list[int] = []
        self.end: Finished | None = None
        inputs = tiny.inputs(FAMILY, kind)
        width = inputs["input_ids"].shape[1]
        sampling = JobSampling(temperature=temperature, seed=seed)
        self.job = GenerationJob("a", inputs, width, new, self.hear, sampling=sampling)

    def hear(self, event: Event) -> None:
        assert self.end is None
        if isinstance(event, Tokens):
            self.ids += event.ids
        else:
            self.end = event


def schedule(seed: int) -> int:
    """Requests that come and go at random, with too few pages; returns how many were preempted."""
    some = random.Random(seed)
    method = METHODS[some.choice(list(METHODS))]()
    chunk = some.choice([4, 16, 64])
    engine = ModelEngine(tiny.model(FAMILY), method, max_rows=3, prefill_chunk=chunk)
    widest = max(tiny.inputs(FAMILY, kind)["input_ids"].shape[1] for kind in tiny.kinds(FAMILY))
    block = method.largest_block()
    limits = SchedulerLimits(
        max_rows=3, prefill_tokens=chunk, pages=(2 * widest + 30 + 2 * block) // 8, page=8,
        block=block,
    )  # fmt: skip
    preempted: list[GenerationJob] = []
    loop = EngineLoop(lambda: engine, limits, JobOptions(method), StubClock())
    loop.open()
    preempt = loop._preempt
    loop._preempt = lambda held: (preempted.append(held.job), preempt(held))[1]  # type: ignore[method-assign]
    ears = []
    for _ in range(some.randint(3, 7)):
        kind = some.choice(tiny.kinds(FAMILY))
        ear = Ear(kind, some.choice([0, 0.8, 1.3]), some.randint(0, 2), some.choice([1, 12, 30]))
        if isinstance(method, sooner.HSD) and some.random() < 0.7:
            ear.job.prediction = alone(*ear.asked)
        ears.append(ear)
        loop.add(ear.job)
        for _ in range(some.choice([0, 1, 4])):
            loop.turn()
        if some.random() < 0.15:
            loop.cancel(some.choice(ears).job)
    while not loop.is_idle:
        loop.turn()
    assert engine.is_idle
    for ear in ears:
        assert ear.end is not None
        wanted = alone(*ear.asked)
        assert ear.end.error is None, ear.end.error
        if ear.end.reason == "cancelled":
            assert ear.ids == wanted[: len(ear.ids)]
        else:
            assert (ear.end.reason, ear.ids) == ("length", wanted), (seed, method.name, ear.asked)
    return len(preempted)


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_requests_say_what_they_say_alone(seed: int) -> None:
    schedule(seed)


def test_some_of_them_were_preempted() -> None:
    assert sum(schedule(seed) for seed in range(3, 7)) > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(SCHEDULES, 500))
def test_requests_say_what_they_say_alone_in_many_schedules(seed: int) -> None:
    schedule(seed)
