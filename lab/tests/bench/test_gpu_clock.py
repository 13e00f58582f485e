"""The parts of `sooner bench gpu` that speak to CUDA, on stand-ins; goals; medians' intervals."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

from recorders import MockCuda
from sooner.engine.graphs.buckets import ENTRIES
from sooner_lab.bench.gpu import goals, graphs, kernels, run, verify
from sooner_lab.bench.gpu.bench import GpuBench, data_sheet
from sooner_lab.bench.gpu.models import BuiltModels, build, step_bytes
from sooner_lab.bench.gpu.profile import round_figures
from sooner_lab.bench.gpu.settings import GpuSettings
from sooner_lab.bench.gpu.timing import Deadline, DeviceClock, Timing, replayed
from sooner_lab.bench.step.simulated import DEVICE, simulated_device, to_device


def test_memory_can_be_freed_after_a_failed_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = MockCuda(monkeypatch)
    clock = DeviceClock(torch.device("cuda", 0))
    replay, how = replayed(lambda call: cuda.fail(bool(cuda.open)), 2, clock, pool=(0, 1))
    assert how == "RuntimeError: operation not permitted when stream is capturing"
    replay()
    clock.free()
    assert cuda.uses == {(0, 1): 0}


def test_arms_take_turns_and_a_failed_arm_is_left_out() -> None:
    order = []

    def arm(name: str) -> Any:
        def run() -> None:
            order.append(name)
            if name == "b":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 4 GiB")

        return run

    timings = DeviceClock(torch.device("cpu")).interleaved({name: arm(name) for name in "abc"}, 2)
    assert order == ["a", "b", "c", "a", "c", "a", "c"]
    message = "OutOfMemoryError: CUDA out of memory. Tried to allocate 4 GiB"
    assert timings["b"] == {"missing": message}
    assert timings["a"]["samples"] == 2, "the warm-up is not counted"


@pytest.mark.parametrize(
    ("count", "low", "high"), [(1, 0, 0), (5, 0, 4), (6, 0, 5), (9, 1, 7), (20, 5, 14)]
)
def test_intervals_are_the_sign_tests(count: int, low: int, high: int) -> None:
    """Ranks as in tables of the sign test at 5 %, such as Conover's."""
    timing = Timing.of([float(number) for number in range(count)])
    assert timing.interval == (low, high)
    assert timing.seconds == (count - 1) / 2
    assert timing.as_dict()["interval"] == [low, high]


def test_kernels_that_overlap_are_busy_once() -> None:
    """Two kernels of which the second begins before the first ends, a third, and host calls."""

    class Event:
        def __init__(self, name: str, kind: Any, start: float = 0, end: float = 0) -> None:
            self.name, self.device_type = name, kind
            self.time_range = SimpleNamespace(start=start, end=end)

    host, device = torch.autograd.DeviceType.CPU, torch.autograd.DeviceType.CUDA
    events = [
        Event("gemm", device, 100, 400), Event("copy", device, 300, 500),
        Event("norm", device, 600, 700), Event("cudaLaunchKernelExC", host),
        Event("cudaGraphLaunch", host), Event("aten::mm", host),
    ]  # fmt: skip
    figures = round_figures(events, 2)
    assert figures["kernels"] == 1.5
    assert figures["launches"] == 1.0
    assert figures["busy_seconds"] == pytest.approx(500e-6 / 2)


def result(device: str, **sections: Any) -> dict[str, Any]:
    return {
        "provenance": {"device": device},
        "settings": {"device": "cuda", "dtype": "bfloat16", "target": "7b"},
        "bandwidth": {},
        "sections": {name: {"status": "done", **section} for name, section in sections.items()},
    }


def test_goals_are_judged_on_every_card_in_bf16() -> None:
    arms = {
        "hf-compiled": {"round_seconds": 0.004, "identical": True},
        "sooner-graphs": {"round_seconds": 0.005, "identical": True, "idle_share": 0.02},
        "sooner-compiled": {"missing": "no graphs"},
    }
    cell = {"context": 32_768, "block": 16, "arm": "graph chain", "over_plain": 1.3}
    rows = [
        {"arm": "speculative", "acceptance": 0.8, "share_of_theory": 0.95, "captures": [9, 0]},
        {"arm": "eagle", "acceptance": None, "identical": False},
    ]
    waves = [{"captures": 7}, {"captures": 3}]
    sections: dict[str, Any] = {
        "kernels": {"ok": True},
        "step": {"models": [{"model": "7b", "arms": arms}]},
        "verify": {"cells": [cell]},
        "methods": {"rows": rows, "steps": {"draft": {"seconds": 1}, "plain": {"seconds": 4}}},
        "engine": {"arms": [{"arm": "plain", "waves": waves}]},
        "graphs": {"bytes": None, "reason": "no graphs"},
    }
    by_name = {goal["goal"]: goal for goal in goals.goals(result("NVIDIA L40S", **sections))}

    def verdict(begin: str) -> tuple[Any, ...]:
        goal = next(goal for text, goal in by_name.items() if text.startswith(begin))
        return goal["met"], goal["reached"]

    assert verdict("no kernel") == (True, 1.0)
    assert verdict("graphs alone") == (True, pytest.approx(0.8))
    assert verdict("graphs with compile") == (None, None)
    assert verdict("a verification") == (False, 1.3)
    assert verdict("a step of the 0.5B draft") == (False, 0.25)
    assert verdict("speculative decoding") == (True, 0.95)
    assert verdict("graphs captured") == (False, 3.0)
    assert verdict("a plain step with graphs") == (True, 0.02)
    assert verdict("all graphs") == verdict("a copy") == (None, None)
    eagle = next(goal for text, goal in by_name.items() if "eagle is" in text)
    assert eagle["reason"] == "eagle has another text than plain decoding"
    fp32 = result("NVIDIA L40S", **sections)
    fp32["settings"]["dtype"] = "float32"
    assert {goal["met"] for goal in goals.goals(fp32)} == {None}
    empty = goals.goals(result("NVIDIA H200"))
    assert all(goal["met"] is None and goal["reason"] for goal in empty)


@pytest.mark.parametrize(
    ("name", "rate"),
    [("NVIDIA H100 80GB HBM3", 3.35e12), ("NVIDIA H100 PCIe", 2.0e12), ("NVIDIA L40S", 0.864e12),
     ("NVIDIA A100-SXM4-40GB", 1.555e12), ("NVIDIA Unheard", None)],
)  # fmt: skip
def test_cards_have_the_bandwidth_of_their_data_sheets(name: str, rate: float | None) -> None:
    assert data_sheet(name) == rate


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> GpuBench:
    """A bench that takes a CPU for a GPU: what it asks of CUDA is answered by stand-ins."""
    MockCuda(monkeypatch)
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda graph: None, raising=False)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: None)
    clock = DeviceClock(torch.device("cpu"))
    clock.is_cuda = True
    monkeypatch.setattr(clock, "mark", time.perf_counter)
    monkeypatch.setattr(clock, "between", lambda first, last: last - first)
    models = BuiltModels(clock.device, torch.float32, 0)
    settings = GpuSettings.tiny(contexts=(100,), kernel_rows=(2,), blocks=(1, 4))
    return GpuBench(
        settings, clock, models, lambda line: None, lambda: None, Deadline(60), bandwidth=1e9
    )


def test_kernels_on_a_pretended_gpu(pretended: GpuBench, monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(arms: dict[str, Any], repeats: int, calls: int) -> dict[str, Any]:
        for arm in arms.values():
            arm()
        assert calls == 3, "three copies are read in turn"
        missing = {"sdpa-math-grouped": {"missing": "OutOfMemoryError: much"}}
        return {name: {"seconds": 2.0} for name in arms} | missing

    monkeypatch.setattr(pretended.clock, "interleaved", timed)
    monkeypatch.setattr(kernels, "CACHE", 6 * 25_600)  # bytes of keys and values of 100 tokens
    out: dict[str, Any] = {}
    kernels.kernels(pretended, out)
    assert out["ok"]
    ours = out["cells"][0]["arms"]["sooner"]
    assert ours["timed"] == "graph"
    assert ours["bytes_per_second"] == pytest.approx(2 * 2 * 2 * 101 * 16 * 4 / 2.0)
    assert out["cells"][0]["arms"]["sdpa-math-grouped"] == {"missing": "OutOfMemoryError: much"}
    assert "missing" in out["cells"][0]["arms"]["sdpa-efficient-grouped"]
    monkeypatch.setattr(kernels, "MAX_SCORES", 1)
    kernels.kernels(pretended, out)
    assert "GiB of scores" in out["cells"][0]["arms"]["sdpa-math-expanded"]["missing"]


def test_every_bucket_is_captured_and_its_memory_counted(
    pretended: GpuBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the stand-in for CUDA: a capture is begun and ended, in one pool, and replayed."""
    sizes = iter(range(0, 10_000_000, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: next(sizes))
    out: dict[str, Any] = {}
    graphs.graphs(pretended, out)
    cells = [(bucket["rows"], bucket["entries"]) for bucket in out["buckets"]]
    assert cells == [(rows, entries) for rows in (3, 2, 1) for entries in ENTRIES]
    assert out["graphs"] == 2 * len(cells)
    vocab = pretended.models.get("tiny").config.vocab_size
    results = 4 * 4 * 128 * vocab
    assert results < out["bytes"] - 1000 * out["graphs"] < 2 * results
    assert out["capture_seconds"] == pytest.approx(
        sum(o["capture_seconds"] for o in out["buckets"])
    )


def test_provenance_names_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    class Properties:
        name, major, minor, total_memory, multi_processor_count = "NVIDIA H200", 9, 0, 150, 132

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: Properties.name)
    origin = run._provenance(GpuSettings(), torch.device("cuda"), None)
    assert origin["device"] == "NVIDIA H200"
    assert origin["gpu"]["capability"] == "9.0"
    assert "driver" in origin["gpu"]
    assert {"torch", "transformers", "triton"} <= set(origin["versions"])
    monkeypatch.setattr(run, "provenance", lambda *_: {"git": None, "versions": {}})
    stated = run._provenance(GpuSettings.tiny(), torch.device("cpu"), "abc")
    assert (stated["git"], stated["git_stated"]) == ("abc", True)


@pytest.mark.parametrize(
    ("name", "gigabytes"), [("qwen2.5-vl-7b", 14.14), ("llava-onevision-0.5b", 0.99)]
)
def test_a_step_reads_every_weight_but_the_embedding(name: str, gigabytes: float) -> None:
    """The real shapes are on fake memory: parameters as the models' cards count them."""
    with FakeTensorMode():
        model = build(name, torch.device("cuda"), torch.bfloat16, seed=0)
        weights = step_bytes(model, 1, 0)
        token = step_bytes(model, 3, 100) - weights
    assert weights / 1e9 == pytest.approx(gigabytes, abs=0.01)
    config = model.config
    width = config.hidden_size // config.num_attention_heads
    assert token == 300 * 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * width
    assert {tensor.dtype for tensor in model.buffers()} == {torch.float32}, (
        "as HF loads a bf16 model"
    )
    assert {tensor.device.type for tensor in (*model.parameters(), *model.buffers())} == {"cuda"}


def test_texts_on_a_simulated_device() -> None:
    """Prompts, scripts and blocks lie where the model does; nothing mixes devices."""
    models = BuiltModels(DEVICE, torch.float32, 0)
    for name in ("tiny", "tiny-draft"):
        models.built[name] = to_device(build(name, torch.device("cpu"), torch.float32, 0))
    bench = GpuBench(
        GpuSettings.tiny(verify_contexts=(64,)),
        DeviceClock(DEVICE),
        models,
        progress=lambda line: None,
        keep=lambda: None,
        deadline=Deadline(60),
        bandwidth=1e9,
    )
    verified: dict[str, Any] = {}
    with simulated_device():
        verify.verify(bench, verified)
    assert all("seconds" in row for row in verified["cells"])
