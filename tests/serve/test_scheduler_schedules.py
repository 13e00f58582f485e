"""Random arrivals, hang-ups, deadlines, failures and too few pages, on a made-up clock.

Whatever happens, every job ends exactly once, its ids are those that it says alone, the order is
the scheduler's, and no row and no page is left behind.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from serve.stub_engine import StubClock, StubEngine, StubRequest, job_options, solo_output
from sooner.serve.engine_loop import EngineLoop
from sooner.serve.jobs import Event, Finished, GenerationJob, Tokens

WORDS = range(12)
STOPS = frozenset({3})


class Client:
    """Keeps what a job is told; may be one that can't be told anything any more."""

    def __init__(self, world: World, name: str, prompt: list[int], **options: Any) -> None:
        self.world, self.prompt, self.is_deaf = world, prompt, False
        self.ids: list[int] = []
        self.end: Finished | None = None
        self.hung_up = False
        self.job = GenerationJob(
            name, {"input_ids": [prompt]}, len(prompt), events=self.record,
            arrived=world.clock(), stop_token_ids=STOPS, **options,
        )  # fmt: skip

    def record(self, event: Event) -> None:
        if self.is_deaf:
            raise RuntimeError("the event loop is closed")
        assert self.end is None, "told something behind its end"
        if isinstance(event, Tokens):
            assert event.ids
            assert 0 <= event.drafted <= len(event.ids)
            deadline = self.job.deadline
            assert deadline is None or self.world.turn_began < deadline
            self.ids += event.ids
            return
        self.end = event
        engine = self.world.engine
        rows = [row.prompt for row in engine.rows if not engine.is_broken]
        assert event.reason == "error" or self.prompt not in rows, "told before its row was free"

    @property
    def alone(self) -> list[int]:
        seed = self.job.seed
        assert seed is not None
        return solo_output(self.prompt, seed, self.job.max_tokens, STOPS, WORDS)

    def check(self) -> None:
        """After the end: it ended once, as it should have."""
        if self.is_deaf:
            return
        assert self.end is not None, f"{self.job.id} never ended"
        assert self.ids == self.alone[: len(self.ids)]
        if self.end.reason in ("stop", "length"):
            assert self.ids == self.alone
            assert (self.end.reason == "stop") == (self.ids[-1] in STOPS)
        if self.end.reason == "cancelled":
            assert self.hung_up
        if self.end.reason == "deadline":
            assert self.job.deadline is not None
            assert self.job.deadline <= self.world.clock()
        assert (self.end.error is None) == (self.end.reason != "error")
        usage = self.end.usage
        assert (usage.prompt_tokens, usage.completion_tokens) == (len(self.prompt), len(self.ids))


class World:
    """The loop and a stub engine, their clients, and what may happen to them."""

    def __init__(self, rows: int, pages: int | None, page: int, chunk: int, block: int) -> None:
        self.clock = StubClock()
        self.engines: list[StubEngine] = []
        self.clients: list[Client] = []
        self.overtaken: Counter[str] = Counter()
        self.preempted: set[StubRequest] = set()
        self.turn_began = 0.0
        self.shape: dict[str, Any] = {
            "max_rows": rows, "prefill_chunk": chunk, "blocks": range(1, block + 1),
            "pages": pages, "page": page, "words": WORDS, "spend": self.clock.advance,
        }  # fmt: skip
        self.loop = EngineLoop(self.build, job_options, self.clock, patience=20)
        self.loop.open()

    def build(self) -> StubEngine:
        self.engines.append(StubEngine(**self.shape))
        return self.engines[-1]

    @property
    def engine(self) -> StubEngine:
        return self.engines[-1]

    @property
    def pending(self) -> list[Client]:
        return [client for client in self.clients if client.end is None and not client.is_deaf]

    def arrive(self, size: int, limit: int, patience: float | None, seed: int) -> None:
        number = len(self.clients)
        prompt = [number, *range(size - 1)]
        due = None if patience is None else self.clock() + patience
        client = Client(
            self, f"job {number}", prompt, max_tokens=limit, deadline=due,
            seed=seed,
        )  # fmt: skip
        if (longest := self.engine.longest) is None or size + limit <= longest:
            self.clients.append(client)
            self.loop.add(client.job)

    def hang_up(self, number: int) -> None:
        if self.clients:
            client = self.clients[number % len(self.clients)]
            client.hung_up = client.hung_up or client.end is None
            self.loop.cancel(client.job)
            assert client.is_deaf or client.end is not None
            assert client.prompt not in [row.prompt for row in self.engine.rows]

    def go_deaf(self, number: int) -> None:
        if self.pending:
            self.pending[number % len(self.pending)].is_deaf = True

    def fail(self, where: str) -> None:
        self.engine.failures.append((where, RuntimeError(f"made up in {where}")))

    def turn(self) -> None:
        self.turn_began = self.clock()
        first = list(self.loop.waiting)
        engine, before = self.engine, len(self.engine.admitted)
        self.loop.turn()
        if engine is self.engine:
            self.watch_order(first, engine.admitted[before:])
        self.check()

    def watch_order(self, waiting: list[GenerationJob], admitted: list[StubRequest]) -> None:
        """Count who began while a more urgent one waited."""
        by_prompt = {client.prompt[0]: client.job for client in self.clients}
        for request in admitted:
            began = by_prompt[request.prompt[0]]
            for other in waiting:
                is_urgent = other.order < began.order
                self.overtaken[other.id] += is_urgent and other in self.loop.waiting

    def check(self) -> None:
        """What holds after every turn."""
        loop, engine = self.loop, self.engine
        assert not self.overtaken.total()
        assert loop.rows == len(engine.rows) <= engine.max_rows
        assert len(loop.running) == len(engine.rows) + len(engine.waiting)
        assert {client.job for client in self.pending} <= {*loop.running, *loop.waiting}
        self.preempted |= {row for row in engine.admitted if row.num_preemptions}
        assert not any(stub.is_broken and not stub.is_closed for stub in self.engines)
        assert not any(stub.used_when_broken for stub in self.engines)

    def finish(self) -> None:
        """Let all that is held end."""
        for engine in self.engines:
            engine.failures.clear()
        for _ in range(20_000):
            if self.loop.is_idle:
                break
            self.turn()
        assert self.loop.is_idle
        assert self.engine.is_idle
        for client in self.clients:
            client.check()


def random_world(seed: int) -> World:
    """A world in which something happens between any two turns."""
    some = random.Random(seed)
    page = some.choice([4, 16, 256])
    pages = some.choice([None, 64 // page + 2, 200 // page + 1])
    world = World(some.randint(1, 5), pages, page, some.choice([1, 7, 64]), some.randint(1, 4))
    is_calm = some.random() < 0.3  # nothing but arrivals
    for _ in range(some.randint(3, 40)):
        what = (
            "arrive" if is_calm else some.choice(["arrive"] * 6 + ["hang", "deaf", "fail", "wait"])
        )
        if what == "arrive":
            due = None if is_calm or some.random() < 0.7 else some.choice([0, 1.5, 10, 40])
            world.arrive(some.randint(1, 30), some.randint(1, 25), due, some.randint(0, 3))
        elif what == "hang":
            world.hang_up(some.randrange(99))
        elif what == "deaf" and some.random() < 0.3:
            world.go_deaf(some.randrange(99))
        elif what == "fail" and some.random() < 0.3:
            world.fail(some.choice(["step", "admit", "prefill", "cancel"]))
        elif what == "wait":
            world.clock.advance(some.random() * 20)
        for _ in range(some.choice([0, 0, 1, 5])):
            world.turn()
    world.finish()
    return world


def test_a_job_without_a_deadline_is_overtaken_for_its_patience_and_no_longer() -> None:
    world = World(rows=1, pages=None, page=4, chunk=64, block=1)
    world.arrive(1, 1, None, 0)
    first = world.clients[0]
    for _ in range(100):
        world.arrive(1, 1, 5, 0)
        world.clock.advance(1.0)
        world.turn()
        if first.end is not None:
            break
    assert 13 <= world.clock.now <= 17  # due after 20 s, as the one that came 5 s before


def test_a_job_that_waits_in_the_engine_is_passed_by_more_urgent_jobs_only() -> None:
    world = World(rows=3, pages=4, page=4, chunk=64, block=1)
    for size in (7, 7, 7):
        world.arrive(size, 8, None, 0)
    world.turn()
    assert any(job.is_waiting for job in world.loop.running)
    world.arrive(2, 1, None, 0)
    world.turn()
    assert len(world.loop.waiting) == 1  # as many as rows, and the other came first
    world.arrive(2, 1, 6, 0)
    world.turn()
    assert world.clients[-1].job not in world.loop.waiting
    assert world.clients[-2].job in world.loop.waiting
    world.finish()


@pytest.mark.parametrize(
    "block", [0, 1, *(pytest.param(block, marks=pytest.mark.soak) for block in range(2, 10))]
)
def test_in_random_schedules_each_job_has_the_output_of_a_job_alone(block: int) -> None:
    """Two hundred of them; `make soak` runs a thousand."""
    ends: Counter[str] = Counter()
    for seed in range(100 * block, 100 * (block + 1)):
        world = random_world(seed)
        ends.update(client.end.reason for client in world.clients if client.end is not None)
    assert min(ends[reason] for reason in ("stop", "length", "deadline", "error")) > 10
    assert ends["cancelled"] > 10
