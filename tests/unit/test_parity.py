"""Identical, tie or bug."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from transformers import GenerationConfig

import tiny
from sooner.parity import compare, end_ids, reference_run


def scores(*gaps: float, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """For each gap a score vector whose best is token 1 and whose second is token 2."""
    return [torch.tensor([-9.0, 3.0, 3.0 - gap, -5.0], dtype=dtype) for gap in gaps]


def test_equal_runs_are_identical() -> None:
    parity = compare([1, 2, 3], [1, 2, 3])
    assert (parity.verdict, parity.ok, str(parity)) == ("identical", True, "identical")


@pytest.mark.parametrize(
    ("gap", "dtype", "verdict"),
    [
        (1e-6, torch.float32, "tie"),
        (0.0, torch.float32, "tie"),
        (1e-2, torch.float32, "bug"),
        (2e-2, torch.bfloat16, "tie"),
        (0.5, torch.bfloat16, "bug"),
        (4e-3, torch.float16, "tie"),
        (0.1, torch.float16, "bug"),
    ],
)
def test_only_a_gap_within_rounding_is_a_tie(gap: float, dtype: torch.dtype, verdict: str) -> None:
    parity = compare([1, 1], [1, 2], scores(1.0, gap, dtype=dtype))
    assert parity.verdict == verdict
    assert parity.ok == (verdict == "tie")
    assert parity.divergence == 1
    assert (parity.reference, parity.candidate) == (1, 2)
    assert parity.top2_gap == pytest.approx(gap, abs=1e-2)


def test_only_the_first_difference_is_weighed() -> None:
    assert compare([1, 1], [2, 0], scores(0.0, 1.0)).divergence == 0
    assert compare([1, 1], [2, 0], scores(0.0, 1.0)).verdict == "tie"


def test_without_scores_a_difference_is_a_bug() -> None:
    parity = compare([1, 2], [1, 3])
    assert (parity.verdict, parity.divergence) == ("bug", 1)
    assert "token 1 is 3 instead of 2" in str(parity)


@pytest.mark.parametrize(("gap", "verdict"), [(0.0, "tie"), (1.0, "bug")])
def test_a_run_that_stopped_early_is_weighed_by_the_runner_up(gap: float, verdict: str) -> None:
    parity = compare([1, 1], [1], scores(1.0, gap))
    assert (parity.verdict, parity.candidate, parity.divergence) == (verdict, None, 1)


def test_a_token_that_a_processor_forbade_is_a_bug() -> None:
    forbidden = torch.tensor([0.0, 1.0, -torch.inf])
    assert compare([1], [2], [forbidden]).verdict == "bug"


def test_the_reference_run_is_generate_with_a_score_for_each_token() -> None:
    model, inputs = tiny.model("qwen2"), tiny.inputs("qwen2", rows=2)
    free = model.generate(**inputs, max_new_tokens=9, eos_token_id=None, do_sample=False)
    width = inputs["input_ids"].shape[1]
    end = free[0, width + 3].item()
    tokens, scores = reference_run(model, inputs, max_new_tokens=9, eos_token_id=end)
    assert tokens[0] == free[0, width : width + 1 + tokens[0].index(end)].tolist()
    assert [len(row) for row in scores] == [len(row) for row in tokens]
    for row_tokens, row_scores in zip(tokens, scores, strict=True):
        assert [int(score.argmax()) for score in row_scores] == row_tokens


def test_ids_that_end_a_text_come_from_the_call_or_its_config() -> None:
    model = SimpleNamespace(generation_config=GenerationConfig(eos_token_id=[7, 3]))
    assert end_ids(model) == [7, 3]  # the first is expected
    assert end_ids(model, eos_token_id=(5, 6)) == [5, 6]
    assert end_ids(model, eos_token_id=None) == []
    assert end_ids(model, generation_config=GenerationConfig(eos_token_id=4)) == [4]
    assert end_ids(SimpleNamespace()) == []
