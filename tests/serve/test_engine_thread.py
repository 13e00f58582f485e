"""The thread that owns the engine: what it is told from outside, and what it tells."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from stub_engine import StubEngine, job_options, logprob, said_alone

from sooner.errors import BadLogitsError
from sooner.serve.engine_loop import StepFailedError, seed_of
from sooner.serve.engine_thread import DEVICE_FAULT, EngineThread
from sooner.serve.jobs import Event, Finished, GenerationJob, JobSampling, Tokens
from sooner.serve.refusal import RefusedError
from sooner.serve.scheduler import SchedulerLimits

WAIT = 60
"""Seconds after which a test gives up; none depends on how long things take."""
PROMPT = [5, 6, 7]


class Listener:
    """A client that keeps its events and can wait for them."""

    def __init__(self, limit: int = 20, *, seed: int = 1, due: float | None = None) -> None:
        self.events: list[Event] = []
        self.ended, self.began = threading.Event(), threading.Event()
        now = time.monotonic()
        self.job = GenerationJob(
            f"request {seed}", {"input_ids": [PROMPT]}, len(PROMPT), limit, self.hear, now,
            None if due is None else now + due, JobSampling(seed=seed),
        )  # fmt: skip

    def hear(self, event: Event) -> None:
        self.events.append(event)
        self.began.set()
        if isinstance(event, Finished):
            self.ended.set()

    @property
    def ids(self) -> list[int]:
        return [one for event in self.events if isinstance(event, Tokens) for one in event.ids]

    def wait(self) -> Finished:
        assert self.ended.wait(WAIT)
        end = self.events[-1]
        assert isinstance(end, Finished)
        return end


class Gate:
    """Holds a stub's steps until it is opened."""

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.is_held = threading.Event()

    def __call__(self, seconds: float) -> None:
        self.is_held.set()
        assert self.is_open.wait(WAIT)


@contextmanager
def running(
    engine: Callable[[], StubEngine] = StubEngine,
    limits: SchedulerLimits | None = None,
    **options: Any,
) -> Iterator[EngineThread]:
    limits = limits or SchedulerLimits(max_rows=8)
    service = EngineThread(engine, limits, job_options, **options)
    service.start()
    until(lambda: service.state != "warming")
    try:
        yield service
    finally:
        service.close(0)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_jobs_of_many_threads_say_what_they_say_alone() -> None:
    with running(
        lambda: StubEngine(max_rows=3, blocks=(1, 2, 4)), SchedulerLimits(max_rows=3)
    ) as service:
        clients = [Listener(30, seed=seed) for seed in range(20)]
        threads = [threading.Thread(target=service.submit, args=[one.job]) for one in clients]
        for thread in threads:
            thread.start()
        for seed, client in enumerate(clients):
            assert client.wait().reason == "length"
            assert client.ids == said_alone(PROMPT, seed, 30)
        assert service.load().running == service.load().waiting == 0


def test_the_usage_tells_what_was_drafted() -> None:
    with running(lambda: StubEngine(blocks=(3,))) as service:
        client = Listener(10)
        service.submit(client.job)
        usage = client.wait().usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (3, 10)
    assert usage.stats.acceptance_histogram == {2: 3}
    stats = usage.stats
    assert (stats.num_spec_steps, stats.num_drafts, stats.num_draft_tokens) == (3, 3, 6)
    assert usage.stats.draft_acceptance_rate == 1
    assert usage.accepted_prediction_tokens == usage.rejected_prediction_tokens == 0


def test_an_engine_may_say_that_it_decodes_one_request_at_a_time() -> None:
    engine = StubEngine(max_rows=1)
    engine.alone = "drafts beside the target"  # type: ignore[attr-defined]
    with running(lambda: engine) as service:  # the limits say 8 rows, and the stub refuses two
        clients = [Listener(seed=seed) for seed in range(3)]
        for client in clients:
            service.submit(client.job)
        assert [client.wait().reason for client in clients] == ["length"] * 3


def test_the_usage_tells_how_much_of_a_prediction_held() -> None:
    with running(lambda: StubEngine(blocks=(3,)), takes_predictions=True) as service:
        client = Listener(10)
        client.job.prediction = [1] * 8
        service.submit(client.job)
        usage = client.wait().usage
    assert (usage.accepted_prediction_tokens, usage.rejected_prediction_tokens) == (6, 2)


def test_a_job_without_a_seed_draws_one() -> None:
    engine = StubEngine()
    with running(lambda: engine) as service:
        clients = [Listener() for _ in range(2)]
        for client in clients:
            client.job.sampling = JobSampling()
            service.submit(client.job)
            client.wait()
    assert clients[0].ids != clients[1].ids
    assert [request.seed for request in engine.admitted] != [1, 1]


def test_the_choices_of_a_request_draw_apart_and_the_first_by_the_seed_itself() -> None:
    jobs = [Listener(seed=7).job for _ in range(4)]
    for number, job in enumerate(jobs):
        job.choice = number
    seeds = [seed_of(job) for job in jobs]
    assert seeds[0] == 7
    assert len(set(seeds)) == 4
    assert all(0 <= seed < 1 << 63 for seed in seeds)
    assert seeds == [seed_of(job) for job in jobs]


def test_logprobs_come_with_the_tokens() -> None:
    with running(lambda: StubEngine(blocks=(1, 3))) as service:
        client = Listener(10)
        client.job.sampling = JobSampling(seed=1, logprobs=1)
        service.submit(client.job)
        client.wait()
    told = [
        one for event in client.events if isinstance(event, Tokens) for one in event.logprobs or []
    ]
    assert told == [logprob(one) for one in client.ids]


class Digits:
    """A grammar that ends its answer at a given token."""

    def __init__(self, most: int) -> None:
        self.most, self.seen = most, []  # type: ignore[var-annotated]

    def accept(self, ids: list[int]) -> None:
        self.seen += ids
        if len(self.seen) > self.most:
            raise ValueError("the answer left its grammar")


def test_a_grammar_follows_what_is_committed_and_fails_alone() -> None:
    with running(lambda: StubEngine(blocks=(2,))) as service:
        clients = [Listener(10, seed=seed) for seed in range(2)]
        for client, most in zip(clients, (99, 5), strict=True):
            client.job.grammar = Digits(most)
            service.submit(client.job)
        good, bad = (client.wait() for client in clients)
    assert good.reason == "length"
    assert clients[0].job.grammar.seen == clients[0].ids
    assert bad.reason == "error"
    assert str(bad.error) == "the answer left its grammar"
    assert clients[1].ids == said_alone(PROMPT, 1, 5)


def test_a_hang_up_frees_the_row_within_a_round() -> None:
    gate = Gate()
    engine = StubEngine(spend=gate)
    with running(lambda: engine) as service:
        client, other = Listener(10_000), Listener(40, seed=2)
        service.submit(client.job)
        assert gate.is_held.wait(WAIT)
        service.cancel(client.job)
        service.submit(other.job)
        steps = engine.steps
        gate.is_open.set()
        assert client.wait().reason == "cancelled"
        assert other.wait().reason == "length"
        assert len(client.ids) <= 2
    assert engine.steps - steps < 50


def test_whoever_can_not_be_told_anything_is_taken_to_have_left() -> None:
    with running() as service:

        def raises(event: Event) -> None:
            raise RuntimeError("Event loop is closed")

        client = Listener(10_000)
        client.job.events = raises
        service.submit(client.job)
        until(lambda: service.load().running == service.load().waiting == 0)
        other = Listener()
        service.submit(other.job)
        assert other.wait().reason == "length"


def test_a_job_whose_deadline_passes_in_line_never_starts() -> None:
    gate = Gate()
    engine = StubEngine(max_rows=1, spend=gate)
    with running(lambda: engine, SchedulerLimits(max_rows=1)) as service:
        first, late = Listener(seed=1), Listener(seed=2, due=0)
        service.submit(first.job)
        assert gate.is_held.wait(WAIT)
        service.submit(late.job)
        gate.is_open.set()
        assert late.wait().reason == "deadline"
        assert first.wait().reason == "length"
    assert [request.seed for request in engine.admitted] == [1]


def test_a_row_whose_deadline_passes_is_freed_and_then_told() -> None:
    engine = StubEngine(spend=lambda seconds: time.sleep(1e-3))
    rows: list[int] = []
    with running(lambda: engine) as service:
        client = Listener(10**9, due=0.2)
        hear = client.hear

        def look(event: Event) -> None:
            rows.append(len(engine.rows))
            hear(event)

        client.job.events = look
        service.submit(client.job)
        assert client.wait().reason == "deadline"
    assert rows[-1] == 0
    assert client.ids == said_alone(PROMPT, 1, len(client.ids))


def test_more_jobs_than_it_holds_are_told_to_come_back() -> None:
    gate = Gate()
    with running(
        lambda: StubEngine(max_rows=1, spend=gate), SchedulerLimits(max_rows=1), max_waiting=2
    ) as service:
        clients = [Listener() for _ in range(3)]
        for client in clients:
            service.submit(client.job)
        with pytest.raises(RefusedError, match="3 requests are under way") as refused:
            service.submit(Listener().job)
        assert refused.value.status == 429
        assert int(refused.value.headers["Retry-After"]) >= 1
        assert service.load().running + service.load().waiting == 3
        gate.is_open.set()
        for client in clients:
            client.wait()
        again = Listener()
        service.submit(again.job)
        assert again.wait().reason == "length"


def test_what_can_never_fit_is_refused_with_the_numbers() -> None:
    limits = SchedulerLimits(pages=2, page=256)
    with running(lambda: StubEngine(pages=2), limits) as service:
        with pytest.raises(
            RefusedError, match="3 prompt tokens and 510 new ones take 3 pages of 256"
        ) as refused:
            service.submit(Listener(510).job)
        assert refused.value.status == 400


def test_a_step_that_raises_ends_its_jobs_and_no_others() -> None:
    engines: list[StubEngine] = []
    gate = Gate()

    def build() -> StubEngine:
        engines.append(StubEngine(max_rows=1, spend=gate))
        return engines[-1]

    with running(build, SchedulerLimits(max_rows=1)) as service:
        hit, waits = Listener(seed=1), Listener(seed=2)
        engines[0].failures.append(("step", RuntimeError("made up")))
        service.submit(hit.job)
        service.submit(waits.job)
        gate.is_open.set()
        end = hit.wait()
        assert end.reason == "error"
        assert str(end.error) == "made up"
        assert waits.wait().reason == "length"
        assert waits.ids == said_alone(PROMPT, 2, 20)
        assert service.state == "ready"
    assert len(engines) == 2
    assert engines[0].is_closed


def test_a_step_that_refuses_something_is_nobodys_fault_in_particular() -> None:
    engines = [StubEngine() for _ in range(3)]
    made = [MemoryError(), BadLogitsError("NaN")]
    for engine, error in zip(engines[1:], made, strict=True):
        engine.failures.append(("step", error))
    with running(engines.pop) as service:
        ends = []
        for _ in range(3):
            client = Listener()
            service.submit(client.job)
            ends.append(client.wait().error)
        assert isinstance(ends[0], StepFailedError)
        assert "NaN" in str(ends[0])
        assert ends[1:] == [made[0], None]


def test_a_request_that_can_not_be_begun_fails_alone() -> None:
    engine = StubEngine()
    with running(lambda: engine) as service:
        engine.failures += [
            ("prefill", ValueError("a picture of no pixels")),
            ("admit", ValueError("no")),
        ]
        clients = [Listener(seed=seed) for seed in range(3)]
        for client in clients:
            service.submit(client.job)
            client.wait()
        assert sorted(client.wait().reason for client in clients) == ["error", "error", "length"]


def test_an_engine_that_can_not_be_made_again_is_told_to_all() -> None:
    engines = iter([StubEngine(max_rows=1)])
    engine = next(engines)
    first = [engine]

    def build() -> StubEngine:
        return first.pop()

    gate = Gate()
    engine.spend = gate
    with running(build, SchedulerLimits(max_rows=1)) as service:
        hit, waits = Listener(seed=1), Listener(seed=2)
        engine.failures.append(("step", RuntimeError("made up")))
        service.submit(hit.job)
        service.submit(waits.job)
        gate.is_open.set()
        assert hit.wait().reason == waits.wait().reason == "error"
        until(lambda: service.state == "failed")
        with pytest.raises(RefusedError, match="IndexError") as refused:
            service.submit(Listener().job)
        assert refused.value.status == 503


def test_a_model_that_can_not_be_loaded_is_a_failed_service() -> None:
    def build() -> StubEngine:
        raise OSError("no such file")

    with running(build) as service:
        assert service.state == "failed"
        assert service.fault == "OSError"


@pytest.mark.parametrize("where", ["step", "cancel", "admit", "prefill"])
def test_a_device_fault_ends_the_process(where: str) -> None:
    statuses: list[int] = []
    gate = Gate()
    engine = StubEngine(max_rows=1, spend=gate)
    with running(
        lambda: engine, SchedulerLimits(max_rows=1), end_process=statuses.append
    ) as service:
        engine.failures.append((where, RuntimeError("CUDA error: device-side assert triggered")))
        hit, waits = Listener(seed=1), Listener(seed=2)
        service.submit(hit.job)
        service.submit(waits.job)
        if where == "cancel":
            assert gate.is_held.wait(WAIT)
            service.cancel(hit.job)
        gate.is_open.set()
        for client in (hit, waits):
            assert client.wait().reason in ("error", "cancelled")
        until(lambda: bool(statuses))
        assert service.state == "failed"
    assert statuses == [DEVICE_FAULT]
    assert engine.steps <= 1
    assert not engine.was_asked_when_broken


def test_an_engine_that_loses_requests_is_made_again() -> None:
    engine = StubEngine()
    engines = [StubEngine(), engine]

    def forget(seconds: float) -> None:
        engine.rows.clear()

    engine.spend = forget
    with running(engines.pop) as service:
        client, other = Listener(), Listener()
        service.submit(client.job)
        assert "lost" in str(client.wait().error)
        service.submit(other.job)
        assert other.wait().reason == "length"


def test_it_takes_nothing_before_it_is_warm() -> None:
    warm = threading.Event()
    seen: list[StubEngine] = []

    def warm_up(engine: Any) -> None:
        seen.append(engine)
        assert warm.wait(WAIT)

    service = EngineThread(StubEngine, SchedulerLimits(), job_options, warm_up=warm_up)
    service.start()
    with pytest.raises(RefusedError, match="warmed up") as refused:
        service.submit(Listener().job)
    assert refused.value.status == 503
    warm.set()
    until(lambda: service.state == "ready")
    client = Listener()
    service.submit(client.job)
    client.wait()
    assert len(seen) == 1
    assert service.close()


def test_it_ticks_while_it_has_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sooner.serve.engine_thread.IDLE_TICK", 0.01)
    with running() as service:
        before = service.last_tick
        until(lambda: service.last_tick > before)


def test_it_does_not_tick_while_a_step_hangs() -> None:
    gate = Gate()
    with running(lambda: StubEngine(spend=gate)) as service:
        client = Listener()
        service.submit(client.job)
        assert gate.is_held.wait(WAIT)
        before = service.last_tick
        time.sleep(0.05)
        assert service.last_tick == before
        assert not service.close(0)
        gate.is_open.set()
        client.wait()


def test_draining_lets_what_is_held_end() -> None:
    gate = Gate()
    with running(
        lambda: StubEngine(max_rows=1, spend=gate), SchedulerLimits(max_rows=1)
    ) as service:
        clients = [Listener(seed=seed) for seed in range(3)]
        for client in clients:
            service.submit(client.job)
        service.drain()
        with pytest.raises(RefusedError, match="stopping") as refused:
            service.submit(Listener().job)
        assert refused.value.status == 503
        assert service.state == "draining"
        gate.is_open.set()
        assert service.close(WAIT)
        assert [client.wait().reason for client in clients] == ["length"] * 3


def test_what_outlives_the_grace_is_told_that_the_server_stops() -> None:
    with running(lambda: StubEngine(spend=lambda seconds: time.sleep(1e-3))) as service:
        client = Listener(10**9)
        service.submit(client.job)
        assert client.began.wait(WAIT)
        assert service.close(0.01)
        end = client.wait()
    assert end.reason == "error"
    assert isinstance(end.error, RefusedError)
    assert end.error.status == 503


def test_a_service_that_never_started_can_be_closed() -> None:
    assert EngineThread(StubEngine, SchedulerLimits(), job_options).close(0)


def test_preempted_jobs_end_as_if_nobody_else_had_been_there() -> None:
    limits = SchedulerLimits(max_rows=4, pages=9, page=8, block=3)
    engine = StubEngine(max_rows=4, pages=9, page=8, blocks=(1, 2, 3))
    with running(lambda: engine, limits) as service:
        clients = [Listener(40, seed=seed) for seed in range(8)]
        for client in clients:
            service.submit(client.job)
        for seed, client in enumerate(clients):
            assert client.wait().reason == "length"
            assert client.ids == said_alone(PROMPT, seed, 40)
    assert len(engine.admitted) > 8
