"""The parts of `sooner bench gpu` that speak to CUDA, on stand-ins; goals; medians' intervals."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from sooner_lab.bench.gpu import goals, texts, waits
from sooner_lab.bench.gpu.timing import DeviceClock, Timing, replayed


class FakeCuda:
    """Events, streams and graphs that note what is asked of them; time is a counter."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.calls, self.capturing = 0.0, [], None
        fake = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                self.at = fake.now

            def elapsed_time(self, other: Any) -> float:
                return 1000 * (other.at - self.at)

        class Stream:
            def __init__(self, device: Any = None) -> None:
                self.device = device

            def wait_stream(self, other: Any) -> None:
                fake.calls.append("wait")

        class Graph:
            def capture_begin(self, pool: Any, capture_error_mode: str) -> None:
                assert capture_error_mode == "thread_local"
                fake.capturing, self.captured = self, []

            def capture_end(self) -> None:
                fake.capturing = None

            def replay(self) -> None:
                for call in self.captured:
                    fake.run(call)

        @contextmanager
        def stream(one: Any) -> Iterator[None]:
            yield

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "Stream", Stream)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        monkeypatch.setattr(torch.cuda, "stream", stream)
        monkeypatch.setattr(torch.cuda, "current_stream", Stream)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: self.calls.append("empty"))
        self.clock = DeviceClock(torch.device("cuda"))

    def run(self, call: int) -> None:
        if self.capturing is not None:
            self.capturing.captured.append(call)
            return
        self.now += 1.0
        self.calls.append(call)


def test_events_are_recorded_around_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(monkeypatch)

    def three() -> None:
        cuda.now += 3.0

    assert cuda.clock.seconds(three) == 3.0
    marks = []
    for step in (1.0, 2.0, 4.0):
        cuda.now += step
        marks.append(cuda.clock.mark())
    assert cuda.clock.gaps(marks) == [2.0, 4.0]


def test_a_graph_makes_every_call_once_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(monkeypatch)
    replay, how = replayed(cuda.run, 3, cuda.clock, pool=None)
    assert how == "graph"
    assert [one for one in cuda.calls if one != "wait"] == [0, 1], "warmed up, then captured"
    cuda.calls.clear()
    replay()
    assert cuda.calls == [0, 1, 2]


def test_what_cannot_be_captured_is_called_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(monkeypatch)

    def run(call: int) -> None:
        if cuda.capturing is not None:
            raise RuntimeError("operation not permitted when stream is capturing")
        cuda.run(call)

    replay, how = replayed(run, 2, cuda.clock, pool=None)
    assert how == "RuntimeError: operation not permitted when stream is capturing"
    assert cuda.capturing is None, "the capture was ended"
    cuda.calls.clear()
    replay()
    assert cuda.calls == [0, 1]


def test_arms_take_turns_and_one_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, order = FakeCuda(monkeypatch), []

    def arm(name: str, seconds: float, fails: bool = False) -> Any:
        def run() -> None:
            order.append(name)
            cuda.now += seconds
            if fails:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 4 GiB")

        return run

    arms = {"a": arm("a", 1.0), "b": arm("b", 2.0, fails=True), "c": arm("c", 3.0)}
    found = cuda.clock.interleaved(arms, 2)
    assert order == ["a", "b", "c", "a", "c", "a", "c"]
    assert found["b"] == "OutOfMemoryError: CUDA out of memory. Tried to allocate 4 GiB"
    assert found["a"] == Timing(1.0, (1.0, 1.0), 2), "the warm-up is not counted"
    assert "empty" in cuda.calls


@pytest.mark.parametrize(
    ("count", "low", "high"), [(1, 0, 0), (5, 0, 4), (6, 0, 5), (9, 1, 7), (20, 5, 14)]
)
def test_intervals_are_the_sign_tests(count: int, low: int, high: int) -> None:
    """Ranks as in tables of the sign test at 5 %, such as Conover's."""
    timing = Timing.of([float(number) for number in range(count)])
    assert timing.interval == (low, high)
    assert timing.seconds == (count - 1) / 2
    assert timing.as_dict(0.5)["interval"] == [low / 2, high / 2]


def waiting() -> None:
    warnings.warn("called a synchronizing CUDA operation", stacklevel=2)


def test_waits_are_found_by_cudas_debug_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def step() -> None:
        if modes[-1] == "error":
            raise RuntimeError("called a synchronizing CUDA operation")
        for _ in range(2):
            waiting()
        warnings.warn("something else", stacklevel=1)

    first = waits.first_wait(step)
    assert first is not None
    assert "test_gpu_clock.py:" in first
    assert first.endswith("RuntimeError: called a synchronizing CUDA operation")
    (place,) = waits.all_waits(step)
    assert place.startswith("2 ")
    assert waits.first_wait(lambda: None) is None
    assert modes[1::2] == ["default"] * 3, "the mode is put back"


def result(device: str, **sections: Any) -> dict[str, Any]:
    return {
        "provenance": {"device": device},
        "settings": {"device": "cuda", "target": "7b"},
        "sections": {name: {"status": "done", **one} for name, one in sections.items()},
    }


def test_goals_are_judged_on_an_h200_alone() -> None:
    arms = {
        "hf-compiled": {"seconds": 0.004, "identical": True},
        "sooner-graphs": {"seconds": 0.005, "identical": True},
        "sooner-compiled": {"missing": "no graphs"},
    }
    sections: dict[str, Any] = {
        "kernels": {"ok": True},
        "step": {"models": [{"model": "7b", "arms": arms}]},
        "verify": {"cells": [{"context": 32_768, "block": 16, "over_plain": 1.3}]},
        "drafts": {"rows": [{"method": "speculative", "acceptance": 0.8, "share_of_theory": 0.95}]},
        "graphs": {"bytes": None, "reason": "no graphs"},
    }
    found = goals.goals(result("NVIDIA H200", **sections))
    verdicts = [one["verdict"] for one in found]
    none = "unmeasured"
    assert verdicts == ["met", "met", none, none, "missed", "met", none]
    assert found[1]["reached"] == pytest.approx(0.8)
    assert found[2]["reason"] == "no graphs"
    elsewhere = goals.goals(result("NVIDIA H100 80GB HBM3", **sections))
    assert {one["verdict"] for one in elsewhere} == {"unmeasured"}
    assert elsewhere[4]["reached"] == 1.3
    arms["sooner-graphs"]["identical"] = False
    red = goals.goals(result("NVIDIA H200", **sections))[1]
    assert (red["verdict"], red["reason"]) == (
        "unmeasured",
        "the text of sooner-graphs is not HF's",
    )
    empty = goals.goals(result("NVIDIA H200"))
    assert all(one["verdict"] == "unmeasured" and one["reason"] for one in empty)


def test_graphs_are_asked_for_once_the_engine_knows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    import sooner.generation

    assert texts.graph_options() in (None, {"graphs": "auto"})
    monkeypatch.setattr(sooner.generation, "generate", lambda model, inputs, *, graphs="off": None)
    assert texts.graph_options() == {"graphs": "auto"}
