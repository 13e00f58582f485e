"""A draft on a CPU beside a target on CUDA: it is spawned, never forked. CUDA is only said to be at
work."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import method_matrix as matrix
import sooner
import tiny
from methods.children import children
from methods.parallel_runs import NEW, generate
from sooner.methods.parallel import worker

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA is initialised in this process, which has two cores."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(worker, "cores", lambda: 2)


@pytest.mark.usefixtures("cuda")
def test_a_fork_is_refused() -> None:
    def serve(peer: Any) -> None:
        raise AssertionError("forked")

    for start in (
        lambda: worker.Worker.in_process("fork", serve),
        lambda: generate("llama", "text", 1, placement="process"),
    ):
        with pytest.raises(sooner.SoonerError, match="can't be forked from a process that uses"):
            start()
    assert not children()


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("device", [None, "cpu"])
def test_auto_spawns(device: str | None) -> None:
    assert worker.place("auto", CPU, device) == "spawn"
    assert worker.place("thread", CPU, device) == "thread"
    draft = tiny.noisy("llama")
    standing = sooner.StandingDraft(draft)  # as of a command, made before the target was loaded
    for method in (
        sooner.ParallelVLM(draft, draft_device=device),
        sooner.ParallelVLM(draft, draft_device=device, standing=standing),
    ):
        spawned = method._process(CPU)
        assert spawned is not None
        assert spawned.is_spawned
        assert spawned.device == CPU


def test_without_cuda_or_a_second_core_it_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "cores", lambda: 2)
    assert worker.place("auto", CPU) == "process"
    assert worker.place("auto", "cuda") == "thread"
    monkeypatch.setattr(worker, "cores", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert worker.place("auto", CPU) == "thread"


@pytest.mark.slow  # a process imports torch
@pytest.mark.usefixtures("cuda")
def test_the_spawned_run_equals_hf() -> None:
    made = generate("llama", "text", 1)
    assert torch.equal(made.sequences, matrix.reference("llama", "text", 1, NEW))
    assert made.stats.draft_forwards
    assert not made.stats.notes
