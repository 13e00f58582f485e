"""Greedy ids of every method equal those of HF's own incremental `generate`, in fp32."""

from __future__ import annotations

import itertools

import pytest
import torch

import method_matrix as matrix
import sooner
import tiny
from method_matrix import Case


def decode(case: Case, method: sooner.Method, new: int, end: int | None) -> torch.Tensor:
    """Sequences of a method through the entry that the case asks for."""
    model, inputs = tiny.model(case.family), tiny.inputs(case.family, case.kind, case.rows)
    options = {"max_new_tokens": new, "eos_token_id": end, "do_sample": False}
    if case.entry == "custom_generate":
        return model.generate(**inputs, **options, custom_generate=method)
    return sooner.generate(model, inputs, method, **options).sequences


@pytest.mark.parametrize("case", matrix.cases(), ids=str)
def test_greedy_ids_equal_those_of_generate(case: Case) -> None:
    end = matrix.middle_token(case.family, case.kind, case.rows) if case.ends else None
    method = matrix.METHODS[case.method](case.family)
    for new in (matrix.LONG, case.short):
        expected = matrix.reference(case.family, case.kind, case.rows, new, end)
        actual = decode(case, method, new, end)
        assert actual.tolist() == expected.tolist(), f"max_new_tokens={new}, eos={end}"


@pytest.mark.parametrize(
    ("family", "kind"),
    [(family, kind) for family in tiny.FAMILIES for kind in tiny.kinds(family)],
)
@pytest.mark.parametrize("rows", [1, 3])
def test_every_kind_of_prompt_is_exact_with_a_draft_model(
    family: str, kind: str, rows: int
) -> None:
    case = Case(family, "noisy-4", kind, rows, 0, "session", ends=False)
    expected = matrix.reference(family, kind, rows, 13)
    actual = decode(case, matrix.METHODS["noisy-4"](family), 13, None)
    assert actual.tolist() == expected.tolist()


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_several_sequences_of_a_prompt_are_exact(family: str) -> None:
    """Rows are repeated behind the embedding; with `top_k=1` each is the greedy one."""
    kind = tiny.kinds(family)[-1]
    options = {"do_sample": True, "top_k": 1, "num_return_sequences": 2, "eos_token_id": None}
    method = matrix.METHODS["noisy-4"](family)
    result = sooner.generate(
        tiny.model(family), tiny.inputs(family, kind, 2), method, max_new_tokens=9, **options
    )
    expected = matrix.reference(family, kind, 2, 9).repeat_interleave(2, 0)
    assert result.sequences.tolist() == expected.tolist()


@pytest.mark.parametrize("new", [1, 2, 3, 6])
@pytest.mark.parametrize("method", ["noisy-7", "itself", "prompt-lookup"])
def test_the_length_limit_cuts_a_draft_where_plain_decoding_stops(method: str, new: int) -> None:
    case = Case("qwen2_5_vl", method, "image", 2, new, "session", ends=False)
    expected = matrix.reference(case.family, case.kind, case.rows, new)
    actual = decode(case, matrix.METHODS[method](case.family), new, None)
    assert actual.tolist() == expected.tolist()


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5, 6, 8])
def test_an_end_at_any_place_of_a_draft_ends_the_row(at: int) -> None:
    family, kind = "qwen3_vl", "video"
    width = tiny.inputs(family, kind, 2)["input_ids"].shape[1]
    end = matrix.reference(family, kind, 2, matrix.LONG)[0, width + at].item()
    expected = matrix.reference(family, kind, 2, matrix.LONG, end)
    case = Case(family, "itself", kind, 2, 0, "custom_generate", ends=True)
    actual = decode(case, matrix.METHODS["itself"](family), matrix.LONG, end)
    assert actual.tolist() == expected.tolist()


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llava_onevision"])
def test_rows_that_end_at_different_times_leave_the_others_alone(family: str) -> None:
    """Several ends, so that most rows of five stop on their own."""
    free = matrix.reference(family, "uneven", 5, matrix.LONG)
    width = tiny.inputs(family, "uneven", 5)["input_ids"].shape[1]
    ends = (free[1, width + 4].item(), free[3, width + 9].item())
    options = {"max_new_tokens": matrix.LONG, "eos_token_id": list(ends), "do_sample": False}
    model, inputs = tiny.model(family), tiny.inputs(family, "uneven", 5)
    expected = model.generate(**inputs, **options)
    for name in ("noisy-4", "prompt-lookup", "words-only"):
        result = sooner.generate(model, inputs, matrix.METHODS[name](family), **options)
        assert result.sequences.tolist() == expected.tolist(), name
        assert len({len(row) for row in result.tokens}) > 2, "the rows should end apart"


@pytest.mark.parametrize("family", ["llama", "qwen2_5_vl", "llava_onevision"])
def test_eager_attention_is_exact_too(family: str) -> None:
    model = tiny.eager(family)
    inputs = tiny.inputs(family, "uneven", 3)
    expected = model.generate(**inputs, max_new_tokens=15, eos_token_id=None, do_sample=False)
    for method in (
        sooner.PromptLookup(),
        sooner.Speculative(tiny.noisy(family), num_draft_tokens=4),
    ):
        result = sooner.generate(model, inputs, method, max_new_tokens=15, eos_token_id=None)
        assert result.sequences.tolist() == expected.tolist()


def test_a_draft_with_its_own_pixels_of_another_family_is_exact() -> None:
    """Draft and target process the same picture differently; each gets its own inputs."""
    target, draft = tiny.model("qwen2_5_vl"), tiny.model("llava_onevision")
    inputs = tiny.inputs("qwen2_5_vl", "image", 3)
    own = tiny.inputs("llava_onevision", "video", 3)
    expected = matrix.reference("qwen2_5_vl", "image", 3, 15)
    method = sooner.Speculative(draft, num_draft_tokens=3, draft_inputs=own)
    result = sooner.generate(target, inputs, method, max_new_tokens=15, eos_token_id=None)
    assert result.sequences.tolist() == expected.tolist()


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_the_noisy_draft_is_neither_useless_nor_perfect(family: str) -> None:
    """Otherwise the matrix would test only full acceptance or none."""
    inputs = tiny.inputs(family, tiny.kinds(family)[-1], 5)
    method = matrix.METHODS["noisy-4"](family)
    stats = sooner.generate(
        tiny.model(family), inputs, method, max_new_tokens=matrix.LONG, eos_token_id=None
    ).stats
    assert 1.7 <= stats.mean_acceptance_length <= 3.6
    assert {0, 1, 4} <= set(stats.acceptance_histogram)


def test_a_perfect_draft_is_accepted_whole() -> None:
    method = matrix.METHODS["itself"]("qwen3_vl")
    inputs = tiny.inputs("qwen3_vl", "mixed", 1)
    options = {"max_new_tokens": 19, "eos_token_id": None}
    stats = sooner.generate(tiny.model("qwen3_vl"), inputs, method, **options).stats
    assert stats.acceptance_histogram == {5: 3}, "18 tokens behind the first, six a round"
    assert stats.nfe == 4


def test_the_covering_subset_covers() -> None:
    cases = matrix.cases()
    pairs = {(case.family, case.method) for case in cases}
    assert pairs == set(itertools.product(tiny.FAMILIES, matrix.METHODS))
    pairs = {(case.method, case.rows) for case in cases}
    assert pairs == set(itertools.product(matrix.METHODS, matrix.BATCHES))
    entries = {(case.method, case.entry) for case in cases}
    assert entries == set(itertools.product(matrix.METHODS, ("session", "custom_generate")))
    assert {(case.method, case.ends) for case in cases} == set(
        itertools.product(matrix.METHODS, (True, False))
    )
    assert {(case.method, case.short) for case in cases} == set(
        itertools.product(matrix.METHODS, matrix.SHORT)
    )
    for family in tiny.FAMILIES:
        assert {case.kind for case in cases if case.family == family} == set(tiny.kinds(family))
