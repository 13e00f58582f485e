"""An engine that fails under its thread: whose jobs end, and whose go on."""

from __future__ import annotations

import pytest

from serve.job_listener import PROMPT, WAIT, Gate, Listener, running, until
from serve.stub_engine import StubEngine, solo_output
from sooner.serve.engine_thread import DEVICE_FAULT
from sooner.serve.refusal import RefusedError


def test_a_step_that_raises_ends_only_its_jobs() -> None:
    engines: list[StubEngine] = []
    gate = Gate()

    def build() -> StubEngine:
        engines.append(StubEngine(max_rows=1, spend=gate))
        return engines[-1]

    with running(build) as service:
        hit, waits = Listener(seed=1), Listener(seed=2)
        engines[0].failures.append(("step", RuntimeError("made up")))
        service.submit(hit.job)
        service.submit(waits.job)
        gate.is_open.set()
        end = hit.wait()
        assert end.reason == "error"
        assert str(end.error) == "made up"
        assert waits.wait().reason == "length"
        assert waits.ids == solo_output(PROMPT, 2, 20)
        assert service.state == "ready"
    assert len(engines) == 2
    assert engines[0].is_closed


def test_an_engine_that_can_not_be_made_again_is_reported_to_all() -> None:
    engines = iter([StubEngine(max_rows=1)])
    engine = next(engines)
    first = [engine]

    def build() -> StubEngine:
        return first.pop()

    gate = Gate()
    engine.spend = gate
    with running(build) as service:
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


@pytest.mark.parametrize("where", ["step", "cancel", "admit", "prefill"])
def test_a_device_fault_ends_the_process(where: str) -> None:
    statuses: list[int] = []
    gate = Gate()
    engine = StubEngine(max_rows=1, spend=gate)
    with running(lambda: engine, end_process=statuses.append) as service:
        engine.failures.append((where, RuntimeError("CUDA error: device-side assert triggered")))
        hit, waits = Listener(seed=1), Listener(seed=2)
        service.submit(hit.job)
        service.submit(waits.job)
        if where == "cancel":
            assert gate.is_reached.wait(WAIT)
            service.cancel(hit.job)
        gate.is_open.set()
        for client in (hit, waits):
            assert client.wait().reason in ("error", "cancelled")
        until(lambda: bool(statuses))
        assert service.state == "failed"
    assert statuses == [DEVICE_FAULT]
    assert engine.steps <= 1
    assert not engine.used_when_broken


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
