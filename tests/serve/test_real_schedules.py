"""The loop over a real engine with pages: whatever happens around a request, it says what it says
alone."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from typing import Any

import pytest

import sooner
import tiny
from memory.test_engine_memory import check, poison
from method_matrix import METHODS
from page_prompts import SLOTS, prompt_of
from serve.stub_engine import StubClock
from sooner.engine.memory import manager
from sooner.serve.engine_loop import EngineLoop
from sooner.serve.engine_options import Following, JobOptions, ModelEngine, sampling_options
from sooner.serve.jobs import Event, Finished, GenerationJob, Tokens, seed_of

SCHEDULES = 8
"""Schedules of all methods together, on every change; `soak` runs `MANY`."""
MANY = 1000
FAMILY = "qwen2_5_vl"
NEW = 30
SERVED = ("plain", "prompt-lookup", "noisy-4", "noisy-auto", "eagle", "sd-tree", "hsd")
TAILS = ((), (5,), (5, 6, 7, 8, 9), (5, 6, 7, 8, 9, 5, 6, 7, 8), (70, 71, 72))
DRAWN = (
    {"temperature": 0.0}, {"temperature": 0.0, "frequency_penalty": 1.5}, {"temperature": 0.8},
    {"temperature": 1.3, "top_k": 20}, {"temperature": 1.0, "repetition_penalty": 1.2},
)  # fmt: skip


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "PAGE", SLOTS)


@cache
def alone(kind: str, tail: tuple[int, ...], drawn: int, seed: int) -> list[int]:
    """What plain decoding says to a request that is alone."""
    inputs = prompt_of(FAMILY, kind, tail)
    job = GenerationJob("", inputs, 0, NEW, sampling=sampling_options(**DRAWN[drawn]))
    options = JobOptions()(job)
    del options["media_keys"], options["arrived"]
    options["eos_token_id"] = -1
    return sooner.generate(tiny.model(FAMILY), inputs, seed=seed, **options).tokens[0]


class RandomRequest:
    """A request, what its client is told, and what it should be."""

    def __init__(self, some: random.Random, now: float, takes_predictions: bool) -> None:
        self.kind, self.tail = some.choice(tiny.kinds(FAMILY)), some.choice(TAILS)
        drawn, new = some.randrange(len(DRAWN)), some.choice([1, 12, NEW, NEW])
        inputs = prompt_of(FAMILY, self.kind, self.tail)
        sampling, seed = sampling_options(**DRAWN[drawn]), some.randint(0, 2)
        self.job = GenerationJob(
            "a", inputs, inputs["input_ids"].shape[1], new, self.record, arrived=now,
            sampling=sampling, seed=seed, choice=some.choice([0, 0, 0, 1]),
        )  # fmt: skip
        whole = alone(self.kind, self.tail, drawn, seed_of(self.job))
        self.expected, self.reason = whole[:new], "length"
        if some.random() < 0.3:
            stop = some.choice(whole)
            self.job.stop_token_ids = frozenset([stop])
            if stop in self.expected:
                self.expected, self.reason = self.expected[: self.expected.index(stop) + 1], "stop"
        if some.random() < 0.2:
            self.job.deadline = now + some.choice([3, 20, 60])
        if some.random() < 0.5:
            num_media = {"image": 1, "images": 2, "video": 1, "mixed": 2}.get(self.kind, 0)
            self.job.media_keys = tuple(f"{self.kind} {number}" for number in range(num_media))
        if takes_predictions and some.random() < 0.7:
            self.job.prediction = whole[some.choice([0, 0, 4]) :]
        self.ids: list[int] = []
        self.end: Finished | None = None

    def record(self, event: Event) -> None:
        assert self.end is None
        if isinstance(event, Tokens):
            self.ids += event.ids
        else:
            self.end = event

    def check(self, where: Any) -> None:
        """After the end, of which ever kind."""
        assert self.end is not None, where
        assert self.end.error is None, (where, self.end.error)
        if self.end.reason in ("cancelled", "deadline"):
            assert self.ids == self.expected[: len(self.ids)], where
        else:
            assert (self.end.reason, self.ids) == (self.reason, self.expected), where
        assert self.end.usage.completion_tokens == len(self.ids)


class Preemptions:
    """Counts what a loop says of its jobs."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.count.update([name])


def schedule(seed: int) -> Counter[str]:
    """Requests that come and go at random, with too few pages.

    Returns how many were preempted, and how many tokens of prompts were not prefilled.
    """
    some = random.Random(seed)
    name = some.choice(SERVED)
    is_hsd = name == "hsd"
    method = sooner.HSD(drafts=[[]], nodes=6) if is_hsd else Following(METHODS[name](FAMILY))
    longest = max(
        prompt_of(FAMILY, kind, TAILS[3])["input_ids"].shape[1] for kind in tiny.kinds(FAMILY)
    )
    minimum = -(-(longest + NEW + method.largest_block()) // SLOTS)
    rows, chunk = some.choice([2, 3, 5]), some.choice([4, 16, 64])
    engine = ModelEngine(
        tiny.model(FAMILY), method, max_rows=rows, prefill_chunk=chunk,
        pages=minimum + some.choice([0, 3, minimum // 2, minimum]), paged=some.random() < 0.5,
        prefix_caching=some.random() < 0.9,
    )  # fmt: skip
    clock, preemptions = StubClock(), Preemptions()
    loop = EngineLoop(lambda: engine, JobOptions(method), clock, preemptions, patience=20)
    loop.open()
    memory = engine.memory
    assert memory is not None

    def turn() -> None:
        loop.turn()
        clock.advance(1.0)
        poison(memory)
        check(engine)
        assert loop.rows <= rows

    clients = []
    for _ in range(some.randint(3, 8)):
        clients.append(RandomRequest(some, clock.now, is_hsd))
        loop.add(clients[-1].job)
        for _ in range(some.choice([0, 1, 4])):
            turn()
        if some.random() < 0.15:
            loop.cancel(some.choice(clients).job)
    turns = 0
    while not loop.is_idle:
        turn()
        turns += 1
        assert turns < 2000, (seed, "it goes on for ever")
    assert engine.is_idle
    assert memory.pool.used == 0
    copies = 0 if memory._stores is not None else memory.pool.cached
    assert len(memory._cached_pages.content) == copies, "what is kept is what may be found"
    for number, client in enumerate(clients):
        client.check((seed, name, number, client.kind, client.tail, client.job.sampling))
    cached = sum(request.end.usage.cached_tokens for request in clients if request.end is not None)
    return preemptions.count + Counter(cached=cached)


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_requests_of_a_schedule_have_the_output_of_requests_alone(seed: int) -> None:
    schedule(seed)


def test_some_of_them_were_preempted_and_some_reused_their_prefix() -> None:
    """Else they would show nothing."""
    counts = sum((schedule(seed) for seed in (29, 37, 39)), Counter())
    assert counts["preempted"] > 2
    assert counts["cached"] > 50


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(SCHEDULES, MANY))
def test_requests_of_many_schedules_have_the_output_of_requests_alone(seed: int) -> None:
    schedule(seed)
