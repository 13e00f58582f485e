"""The thread that owns the engine: what it is told, what it tells, and an engine that fails."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from serve.job_listener import PROMPT, WAIT, Gate, Listener, running, until
from serve.stub_engine import StubEngine, solo_output
from sooner.errors import DEVICE_FAULT
from sooner.serve.engine_thread import EngineThread, seed_of
from sooner.serve.refusal import RefusedError


def test_jobs_of_many_threads_get_the_output_of_jobs_alone() -> None:
    with running(lambda: StubEngine(max_rows=3, blocks=(1, 2, 4))) as service:
        clients = [Listener(30, seed=seed) for seed in range(20)]
        threads = [
            threading.Thread(target=service.submit, args=[listener.request]) for listener in clients
        ]
        for thread in threads:
            thread.start()
        for seed, client in enumerate(clients):
            assert client.wait().finish_reason == "length"
            assert client.ids == solo_output(PROMPT, seed, 30)
        assert service.load().running == service.load().waiting == 0


def test_more_jobs_than_it_takes_are_refused_until_there_is_room() -> None:
    gate = Gate()
    with running(lambda: StubEngine(max_rows=1, spend=gate), max_requests=3) as service:
        clients = [Listener() for _ in range(3)]
        for client in clients:
            service.submit(client.request)
        with pytest.raises(RefusedError, match="3 requests are under way") as refused:
            service.submit(Listener().request)
        assert refused.value.status == 429
        assert int(refused.value.headers["Retry-After"]) >= 1
        assert service.load().running + service.load().waiting == 3
        gate.is_open.set()
        for client in clients:
            client.wait()
        again = Listener()
        service.submit(again.request)
        assert again.wait().finish_reason == "length"


def test_it_takes_nothing_before_it_is_warm() -> None:
    warm = threading.Event()
    seen: list[StubEngine] = []

    def warm_up(engine: Any) -> None:
        seen.append(engine)
        assert warm.wait(WAIT)

    service = EngineThread(StubEngine, warm_up=warm_up)
    service.start()
    with pytest.raises(RefusedError, match="warming up") as refused:
        service.submit(Listener().request)
    assert refused.value.status == 503
    warm.set()
    until(lambda: service.state == "ready")
    client = Listener()
    service.submit(client.request)
    client.wait()
    assert len(seen) == 1
    assert service.close()


@pytest.mark.slow
def test_it_does_not_tick_while_a_step_hangs() -> None:
    gate = Gate()
    with running(lambda: StubEngine(spend=gate)) as service:
        client = Listener()
        service.submit(client.request)
        assert gate.is_reached.wait(WAIT)
        before = service.last_tick
        time.sleep(0.05)
        assert service.last_tick == before
        assert not service.close(0)
        gate.is_open.set()
        client.wait()


def test_draining_lets_running_jobs_end() -> None:
    gate = Gate()
    with running(lambda: StubEngine(max_rows=1, spend=gate)) as service:
        clients = [Listener(seed=seed) for seed in range(4)]
        for client in clients[1:]:
            service.submit(client.request)
        service.drain()
        with pytest.raises(RefusedError, match="stopping") as refused:
            service.check_takes()
        assert refused.value.status == 503
        assert service.state == "draining"
        coming = clients[:1]  # its media are there late
        gate.is_open.set()
        late = lambda: len([service.submit(coming.pop().request) for _ in coming[:1]])  # noqa: E731
        assert service.close(WAIT, late)
        assert [client.wait().finish_reason for client in clients] == ["length"] * 4
        with pytest.raises(RefusedError, match="stopping"):
            service.submit(Listener().request)


def test_jobs_that_outlive_the_grace_end_because_the_server_stops() -> None:
    with running(lambda: StubEngine(spend=lambda seconds: time.sleep(1e-3))) as service:
        client = Listener(10**9)
        service.submit(client.request)
        assert client.began.wait(WAIT)
        assert service.close(0.01)
        end = client.wait()
    assert end.finish_reason == "error"
    assert isinstance(end.error, RefusedError)
    assert end.error.status == 503


def test_the_request_tells_what_was_drafted() -> None:
    with running(lambda: StubEngine(blocks=(3,))) as service:
        client = Listener(10)
        service.submit(client.request)
        end = client.wait()
    assert (end.prompt_tokens, end.completion_tokens) == (3, 10)
    assert end.acceptance == {2: 3}
    assert (end.num_drafts, end.num_draft_tokens) == (3, 6)
    assert end.num_accepted == 6


def test_without_a_seed_one_is_drawn() -> None:
    assert seed_of(None, 0) != seed_of(None, 0)
    assert seed_of(7, 0) == 7
    assert len({seed_of(7, choice) for choice in range(5)}) == 5


@pytest.mark.parametrize("where", ["step", "cancel"])
def test_an_engine_that_raises_ends_the_service_and_all_are_told(where: str) -> None:
    gate = Gate()
    engine = StubEngine(max_rows=1, spend=gate)
    with running(lambda: engine) as service:
        engine.failures.append((where, RuntimeError("made up")))
        hit, waits = Listener(seed=1), Listener(seed=2)
        service.submit(hit.request)
        service.submit(waits.request)
        if where == "cancel":
            assert gate.is_reached.wait(WAIT)
            service.cancel(hit.request)
        gate.is_open.set()
        for client in (hit, waits):
            end = client.wait()
            assert end.finish_reason == "error"
            assert isinstance(end.error, RefusedError)
            assert end.error.status == 503
        until(lambda: service.state == "failed")
        with pytest.raises(RefusedError, match="RuntimeError") as refused:
            service.submit(Listener().request)
        assert refused.value.status == 503
    assert engine.is_closed
    assert not engine.used_when_broken


@pytest.mark.parametrize("where", ["step", "cancel", "admit", "prefill"])
def test_a_device_fault_ends_the_process(where: str) -> None:
    statuses: list[int] = []
    gate = Gate()
    engine = StubEngine(max_rows=1, spend=gate)
    with running(lambda: engine, end_process=statuses.append) as service:
        engine.failures.append((where, RuntimeError("CUDA error: device-side assert triggered")))
        hit, waits = Listener(seed=1), Listener(seed=2)
        service.submit(hit.request)
        service.submit(waits.request)
        if where == "cancel":
            assert gate.is_reached.wait(WAIT)
            service.cancel(hit.request)
        gate.is_open.set()
        for client in (hit, waits):
            assert client.wait().finish_reason in ("error", "cancelled")
        until(lambda: bool(statuses))
        assert service.state == "failed"
    assert statuses == [DEVICE_FAULT]
    assert engine.steps <= 1
    assert not engine.used_when_broken


def test_an_engine_that_loses_requests_has_failed() -> None:
    engine = StubEngine()
    engine.spend = lambda seconds: engine.rows.clear()
    with running(lambda: engine) as service:
        client = Listener()
        service.submit(client.request)
        assert client.wait().finish_reason == "error"
        until(lambda: service.state == "failed")


def test_metrics_that_raise_end_no_request() -> None:
    with running(StubEngine) as service:
        service.listener = object()  # every call of it raises
        for _ in range(2):
            client = Listener()
            service.submit(client.request)
            assert client.wait().finish_reason == "length"
