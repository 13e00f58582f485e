"""What jobs of the engine's thread are told: tokens, usage, hang-ups, deadlines."""

from __future__ import annotations

import time

from serve.job_listener import PROMPT, WAIT, Gate, Listener, running
from serve.stub_engine import StubEngine, solo_output
from sooner.serve.jobs import Event, JobSampling


def test_the_usage_tells_what_was_drafted() -> None:
    with running(lambda: StubEngine(blocks=(3,))) as service:
        client = Listener(10)
        service.submit(client.job)
        usage = client.wait().usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (3, 10)
    assert usage.acceptance_histogram == {2: 3}
    assert (usage.num_drafts, usage.num_draft_tokens) == (3, 6)
    assert usage.accepted_prediction_tokens == usage.rejected_prediction_tokens == 0


def test_a_hang_up_frees_the_row_within_a_round() -> None:
    gate = Gate()
    engine = StubEngine(spend=gate)
    with running(lambda: engine) as service:
        client, other = Listener(10_000), Listener(40, seed=2)
        service.submit(client.job)
        assert gate.is_reached.wait(WAIT)
        service.cancel(client.job)
        service.submit(other.job)
        steps = engine.steps
        gate.is_open.set()
        assert client.wait().reason == "cancelled"
        assert other.wait().reason == "length"
        assert len(client.ids) <= 2
    assert engine.steps - steps < 50


def test_a_row_whose_deadline_passes_is_freed_before_its_end_is_sent() -> None:
    engine = StubEngine(spend=lambda seconds: time.sleep(1e-3))
    rows: list[int] = []
    with running(lambda: engine) as service:
        client = Listener(10**9, due=0.2)
        record = client.record

        def look(event: Event) -> None:
            rows.append(len(engine.rows))
            record(event)

        client.job.events = look
        service.submit(client.job)
        assert client.wait().reason == "deadline"
    assert rows[-1] == 0
    assert client.ids == solo_output(PROMPT, 1, len(client.ids))


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
