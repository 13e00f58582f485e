"""What parallel decoding takes of memory, and where: containers have little in /dev/shm."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import sooner
import tiny
from fakes import row_noise
from sooner.engine.sampling import Processing
from sooner.methods.parallel.board import Board, DraftJob

pytestmark = pytest.mark.slow

FAMILY = "llava_onevision"
LENGTH = sooner.ParallelVLM.max_draft_tokens


def board(do_sample: bool, rows: int = 1) -> Board:
    """The board of a job as `ParallelVLM` gives it, without models."""
    job = DraftJob(
        inputs={}, processing=Processing(do_sample=do_sample), prompt_ids=rows * [[1] * 3000],
        vocab=152_000, limit=512, max_ahead=2 * LENGTH, noise=row_noise(rows),
    )  # fmt: skip
    return Board(job)


def test_a_sampled_row_takes_what_the_draft_may_be_ahead_and_no_more() -> None:
    """At a vocabulary of 152,000: 34 distributions of 0.6 MB, not 66."""
    sampled, greedy = board(True), board(False)
    assert sampled.probs.shape[1] == 2 * LENGTH + 2
    assert sampled.size <= 21.5e6
    assert greedy.size <= 100_000
    assert board(True, rows=8).size <= 8 * 21.5e6


@pytest.mark.parametrize("placement", ["process", "thread"])
@pytest.mark.parametrize("do_sample", [False, True])
def test_nothing_lies_in_dev_shm(
    placement: Any, do_sample: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No tensor is put there, and nothing there is mapped, at any moment of a run."""

    def refused(self: Any) -> Any:
        raise AssertionError("a tensor was put into /dev/shm")

    monkeypatch.setattr(torch.Tensor, "share_memory_", refused)
    seen: list[list[str]] = []
    draft = tiny.noisy(FAMILY)
    earlier = set(shared_mappings())  # of earlier tests
    method = sooner.ParallelVLM(draft, prune=0.5, min_visual=0, placement=placement)
    made = sooner.generate(
        tiny.model(FAMILY), tiny.inputs(FAMILY, "video", 2), method,
        max_new_tokens=12, eos_token_id=None, do_sample=do_sample, seed=0,
        on_tokens=lambda *_: seen.append(shared_mappings()),
    )  # fmt: skip
    assert made.stats.draft_forwards > 0
    assert seen
    assert not any({*mappings} - earlier for mappings in seen)


def shared_mappings() -> list[str]:
    """Mappings of files in /dev/shm, torch's own names among them."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if re.search(r"/dev/shm/torch_", line)]
