"""Random arrivals, hang-ups, deadlines, failures and too few pages, on a made-up clock.

Whatever happens, every request ends exactly once, its ids are those that it says alone, and no row
and no page is left behind.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from serve.stub_engine import StubClock, StubEngine, request_of, solo_output
from sooner.serve.engine_thread import EngineThread, Tokens

WORDS = range(12)
STOPS = frozenset({3})


class Client:
    """Keeps what a request is told; may be one that can't be told anything any more."""

    def __init__(
        self, world: World, name: str, prompt: list[int], limit: int, seed: int, **options: Any
    ) -> None:
        self.world, self.prompt, self.is_deaf = world, prompt, False
        self.ids: list[int] = []
        self.has_ended = self.hung_up = False
        self.alone = solo_output(prompt, seed, limit, STOPS, WORDS)
        self.request = request_of(
            name, prompt, limit, sink=self.record, arrived=world.clock(), seed=seed,
            stop_token_ids=STOPS, **options,
        )  # fmt: skip

    def record(self, event: Tokens | None) -> None:
        if self.is_deaf:
            raise RuntimeError("the event loop is closed")
        assert not self.has_ended, "told something behind its end"
        if event is not None:
            assert event.ids
            assert 0 <= event.drafted <= len(event.ids)
            deadline = self.request.deadline
            assert deadline is None or self.world.turn_began < deadline
            self.ids += event.ids
            return
        self.has_ended = True
        engine = self.world.engine
        rows = [row.prompt for row in engine.rows]
        is_error = self.request.finish_reason == "error"
        assert is_error or self.prompt not in rows, "told before its row was free"

    def check(self) -> None:
        """After the end: it ended once, as it should have."""
        if self.is_deaf:
            return
        request = self.request
        reason = request.finish_reason
        assert self.has_ended, f"{request.id} never ended"
        assert self.ids == self.alone[: len(self.ids)]
        if reason in ("stop", "length"):
            assert self.ids == self.alone
            assert (reason == "stop") == (self.ids[-1] in STOPS)
        if reason == "cancelled":
            assert self.hung_up
        if reason == "deadline":
            assert request.deadline is not None
            assert request.deadline <= self.world.clock()
        assert (request.error is None) == (reason != "error")
        assert request.completion_tokens == len(self.ids)
        assert not request.inputs


class World:
    """The loop and a stub engine, their clients, and what may happen to them."""

    def __init__(self, rows: int, pages: int | None, page: int, chunk: int, block: int) -> None:
        self.clock = StubClock()
        self.clients: list[Client] = []
        self.turn_began = 0.0
        self.engine = StubEngine(
            max_rows=rows, prefill_chunk=chunk, blocks=range(1, block + 1), pages=pages, page=page,
            words=WORDS, spend=self.clock.advance, clock=self.clock,
        )  # fmt: skip
        self.loop = EngineThread(lambda: self.engine, clock=self.clock, due_seconds=20)
        self.loop.open()

    @property
    def pending(self) -> list[Client]:
        return [client for client in self.clients if not (client.has_ended or client.is_deaf)]

    def arrive(self, size: int, limit: int, patience: float | None, seed: int) -> None:
        number = len(self.clients)
        prompt = [number, *range(size - 1)]
        due = None if patience is None else self.clock() + patience
        client = Client(self, f"request {number}", prompt, limit, seed, deadline=due)
        if (longest := self.engine.longest) is None or size + limit <= longest:
            self.clients.append(client)
            self.loop.submit(client.request)
        self.loop.run_commands()

    def hang_up(self, number: int) -> None:
        if self.clients:
            client = self.clients[number % len(self.clients)]
            client.hung_up = client.hung_up or not client.has_ended
            self.loop.cancel(client.request)
            self.loop.run_commands()
            assert client.is_deaf or client.has_ended
            assert client.prompt not in [row.prompt for row in self.engine.rows]

    def go_deaf(self, number: int) -> None:
        if self.pending:
            self.pending[number % len(self.pending)].is_deaf = True

    def fail(self, where: str) -> None:
        self.engine.failures.append((where, RuntimeError(f"made up in {where}")))

    def turn(self) -> None:
        self.turn_began = self.clock()
        self.loop.step()
        self.check()

    def check(self) -> None:
        """What holds after every turn."""
        loop, engine = self.loop, self.engine
        assert loop.load().running == len(engine.rows) <= engine.max_rows
        assert len(loop.requests) == len(engine.rows) + len(engine.waiting)
        assert {client.request for client in self.pending} <= set(loop.requests)

    def finish(self) -> None:
        """Let all that is held end."""
        self.engine.failures.clear()
        for _ in range(20_000):
            if not self.loop.requests:
                break
            self.turn()
        assert not self.loop.requests
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
            world.fail(some.choice(["admit", "prefill"]))
        elif what == "wait":
            world.clock.advance(some.random() * 20)
        for _ in range(some.choice([0, 0, 1, 5])):
            world.turn()
    world.finish()
    return world


def test_a_request_without_a_deadline_is_overtaken_for_its_patience_and_no_longer() -> None:
    world = World(rows=1, pages=None, page=4, chunk=64, block=1)
    world.arrive(1, 1, None, 0)
    first = world.clients[0]
    for _ in range(100):
        world.arrive(1, 1, 5, 0)
        world.clock.advance(1.0)
        world.turn()
        if first.has_ended:
            break
    assert 13 <= world.clock.now <= 17  # due after 20 s, as the one that came 5 s before


@pytest.mark.parametrize(
    "block", [0, *(pytest.param(block, marks=pytest.mark.soak) for block in range(1, 10))]
)
def test_in_random_schedules_each_request_has_the_output_of_one_alone(block: int) -> None:
    """A hundred of them; `make soak` runs a thousand."""
    ends: Counter[str | None] = Counter()
    for seed in range(100 * block, 100 * (block + 1)):
        world = random_world(seed)
        ends.update(client.request.finish_reason for client in world.clients if client.has_ended)
    assert min(ends[reason] for reason in ("stop", "length", "deadline", "error")) > 10
    assert ends["cancelled"] > 10
