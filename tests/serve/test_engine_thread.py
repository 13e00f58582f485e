"""The thread that owns the engine: what it is told from outside, and what it tells."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from serve.job_listener import PROMPT, WAIT, Gate, Listener, running, until
from serve.stub_engine import StubEngine, job_options, solo_output
from sooner.serve.engine_thread import EngineThread
from sooner.serve.refusal import RefusedError


def test_jobs_of_many_threads_get_the_output_of_jobs_alone() -> None:
    with running(lambda: StubEngine(max_rows=3, blocks=(1, 2, 4))) as service:
        clients = [Listener(30, seed=seed) for seed in range(20)]
        threads = [
            threading.Thread(target=service.submit, args=[listener.job]) for listener in clients
        ]
        for thread in threads:
            thread.start()
        for seed, client in enumerate(clients):
            assert client.wait().reason == "length"
            assert client.ids == solo_output(PROMPT, seed, 30)
        assert service.load().running == service.load().waiting == 0


def test_more_jobs_than_it_takes_are_refused_until_there_is_room() -> None:
    gate = Gate()
    with running(lambda: StubEngine(max_rows=1, spend=gate), max_jobs=3) as service:
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
    with running(lambda: StubEngine(pages=2)) as service:
        message = (
            "3 prompt tokens and 510 new ones are more than the 511 that the server has memory"
        )
        with pytest.raises(RefusedError, match=message) as refused:
            service.submit(Listener(510).job)
        assert refused.value.status == 400


def test_it_takes_nothing_before_it_is_warm() -> None:
    warm = threading.Event()
    seen: list[StubEngine] = []

    def warm_up(engine: Any) -> None:
        seen.append(engine)
        assert warm.wait(WAIT)

    service = EngineThread(StubEngine, job_options, warm_up=warm_up)
    service.start()
    with pytest.raises(RefusedError, match="warming up") as refused:
        service.submit(Listener().job)
    assert refused.value.status == 503
    warm.set()
    until(lambda: service.state == "ready")
    client = Listener()
    service.submit(client.job)
    client.wait()
    assert len(seen) == 1
    assert service.close()


@pytest.mark.slow
def test_it_does_not_tick_while_a_step_hangs() -> None:
    gate = Gate()
    with running(lambda: StubEngine(spend=gate)) as service:
        client = Listener()
        service.submit(client.job)
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


def test_jobs_that_outlive_the_grace_end_because_the_server_stops() -> None:
    with running(lambda: StubEngine(spend=lambda seconds: time.sleep(1e-3))) as service:
        client = Listener(10**9)
        service.submit(client.job)
        assert client.began.wait(WAIT)
        assert service.close(0.01)
        end = client.wait()
    assert end.reason == "error"
    assert isinstance(end.error, RefusedError)
    assert end.error.status == 503
