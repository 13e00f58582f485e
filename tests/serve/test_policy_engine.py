"""Who shares a batch of a policy, who goes first, and what a failure ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from serve.robots import SlowPolicy
from serve.stub_engine import StubClock
from sooner.serve.act import PolicyEngine, PolicyRequest
from sooner.serve.engine_thread import EngineThread
from sooner.serve.settings import ServeSettings
from sooner.tasks.act import Observation

PICTURE = np.zeros((2, 2, 3), np.uint8)


class Robots:
    """Requests to a policy behind the loop, on a clock that stands still between calls."""

    def __init__(self, policy: SlowPolicy | None = None, **settings: Any) -> None:
        self.policy, self.clock = policy or SlowPolicy(), StubClock()
        self.ends: dict[str, PolicyRequest] = {}
        self.loop = EngineThread(self.build, clock=self.clock, due_seconds=10.0)
        self.settings = ServeSettings(**settings)
        self.loop.open()

    def build(self) -> PolicyEngine:
        count = lambda: len(self.loop.requests)  # noqa: E731
        sample = Observation(PICTURE, "sample")
        self.engine = PolicyEngine(self.policy, self.settings, sample, count, clock=self.clock)
        return self.engine

    def ask(self, text: str, due: float | None = None) -> PolicyRequest:
        inputs = {"observation": Observation(PICTURE, text)}
        request = PolicyRequest(inputs=inputs, id=text, arrived=self.clock(), deadline=due)

        def sink(event: Any) -> None:
            self.ends[text] = request

        request.sink = sink
        self.loop.submit(request)
        self.loop.run_commands()
        return request

    def run(self) -> list[list[str]]:
        while self.loop.requests:
            self.loop.step()
        return self.policy.batches


def test_a_batch_waits_for_as_many_as_the_last_round_had() -> None:
    robots = Robots(window_ms=1000)
    for text in "012":
        robots.ask(text)
    robots.run()
    robots.ask("3")
    for _ in range(3):
        robots.loop.step()  # two others were there before
    robots.ask("4")
    robots.ask("5")
    assert robots.run() == [["0", "1", "2"], ["3", "4", "5"]]
    robots.ask("6")
    robots.loop.step()
    robots.clock.advance(1.0)  # nobody else comes
    assert robots.run()[2:] == [["6"]]
    robots.ask("7")
    assert robots.run()[3:] == [["7"]]  # a single robot never waits


def test_urgent_requests_go_first() -> None:
    robots = Robots(max_batch=2)
    # A request without a deadline counts as due after ten seconds.
    for text, due in (("1", None), ("2", 900.0), ("3", 5.0), ("4", 700.0)):
        robots.ask(text, due)
    assert robots.run() == [["3", "1"], ["4", "2"]]


def test_a_deadline_that_passes_in_the_queue_costs_nothing() -> None:
    robots = Robots()
    robots.ask("1", 0.5)
    robots.ask("2")
    robots.clock.advance(1.0)
    assert robots.run() == [["2"]]
    assert robots.ends["1"].finish_reason == "deadline"
    assert robots.ends["2"].batch == 1


def test_a_bad_request_does_not_affect_the_rest() -> None:
    robots = Robots()
    for text in ("1", "refuse", "2"):
        robots.ask(text)
    robots.run()
    assert str(robots.ends["refuse"].error) == "this one can't be done"
    actions = [robots.ends[text].action.values[0, 0] for text in "12"]
    assert actions == [1.0, 2.0]


def test_an_unexpected_error_is_of_its_batch_alone_if_the_policy_acts_on() -> None:
    robots = Robots(max_batch=1)
    robots.ask("break", 1.0)
    robots.ask("1")
    assert robots.run() == [["break"], ["sample"], ["1"]]
    assert str(robots.ends["break"].error) == "broken"
    assert robots.ends["1"].error is None
