"""Greedy ids of every method equal those of HF's own incremental `generate`, in fp32."""

from __future__ import annotations

import itertools

import pytest

import method_matrix as matrix
import sooner
import tiny
from covering import thinned
from method_matrix import Case

CASES = [
    *matrix.cases(),
    *(
        pytest.param(case, marks=pytest.mark.slow)
        for case in matrix.product()
        if case not in matrix.cases()
    ),
]


def decode(case: Case, end: int | None) -> list[list[int]]:
    """New tokens of a method through the entry that the case asks for, padded as by HF."""
    target = tiny.model if case.attention == "sdpa" else tiny.eager
    model, inputs = target(case.family), tiny.inputs(case.family, case.kind, case.rows)
    method = matrix.METHODS[case.method](case.family)
    options = {"max_new_tokens": case.new, "eos_token_id": end, "do_sample": False}
    if case.entry in ("engine", "paged"):
        pages = {"pages": 40, "paged": True} if case.entry == "paged" else {}
        engine = sooner.Engine(model, method, prefill_chunk=case.chunk, **pages)
        request = engine.add_request(inputs, **options)
        engine.run()
        assert request.error is None, request.error
        return request.tokens
    chunk = {} if case.chunk is None else {"prefill_chunk_size": case.chunk}
    if case.entry == "custom_generate":
        ids = model.generate(**inputs, **options, **chunk, custom_generate=method)
    else:
        kind = "offloaded" if case.entry == "offloaded" else None
        ids = sooner.generate(
            model, inputs, method, **options, **chunk, cache_implementation=kind
        ).sequences
    return ids[:, inputs["input_ids"].shape[1] :].tolist()


def check(case: Case) -> None:
    """The ids of a case equal those of `generate`, each row of an engine without its padding."""
    end = matrix.middle_token(case.family, case.kind, case.rows) if case.ends else None
    expected = matrix.reference(case.family, case.kind, case.rows, case.new, end)
    width = tiny.inputs(case.family, case.kind, case.rows)["input_ids"].shape[1]
    rows = expected[:, width:].tolist()
    if case.entry in ("engine", "paged"):
        rows = [row[: row.index(end) + 1] if end in row else row for row in rows]
    assert decode(case, end) == rows


@pytest.mark.parametrize("case", CASES, ids=str)
def test_greedy_ids_equal_those_of_generate(case: Case) -> None:
    check(case)


def test_the_core_lane_has_every_pair_of_values_that_is_possible() -> None:
    for (first, values), (second, others) in itertools.combinations(matrix.FACTORS.items(), 2):
        covered = {(getattr(case, first), getattr(case, second)) for case in matrix.cases()}
        assert covered == {
            (value, another)
            for value, another in itertools.product(values, others)
            if matrix.allowed({first: value, second: another})
        }


def test_several_sequences_of_a_prompt_are_exact() -> None:
    """Rows are repeated behind the embedding; with `top_k=1` each is the greedy one."""
    for family in ("llama", "llava_onevision", "qwen3_vl"):
        kind = tiny.kinds(family)[-1]
        options = {"do_sample": True, "top_k": 1, "num_return_sequences": 2, "eos_token_id": None}
        method = matrix.METHODS["noisy-4"](family)
        result = sooner.generate(
            tiny.model(family), tiny.inputs(family, kind, 2), method, max_new_tokens=9, **options
        )
        expected = matrix.reference(family, kind, 2, 9).repeat_interleave(2, 0)
        assert result.sequences.tolist() == expected.tolist()


@pytest.mark.parametrize("at", thinned(range(1, 9), (1, 4, 6)))
def test_an_end_at_any_place_of_a_draft_ends_the_row(at: int) -> None:
    family, kind = "qwen3_vl", "video"
    width = tiny.inputs(family, kind, 2)["input_ids"].shape[1]
    end = matrix.reference(family, kind, 2, matrix.LONG)[0, width + at].item()
    expected = matrix.reference(family, kind, 2, matrix.LONG, end)[:, width:].tolist()
    for name in ("itself", "sd-tree"):
        case = Case(family, name, kind, 2, matrix.LONG, "custom_generate", ends=True)
        assert decode(case, end) == expected, name


def test_a_draft_with_separate_pixels_of_another_family_is_exact() -> None:
    """Draft and target process the same picture differently; each gets its own inputs."""
    target, draft = tiny.model("qwen2_5_vl"), tiny.model("llava_onevision")
    inputs = tiny.inputs("qwen2_5_vl", "image", 3)
    draft_inputs = tiny.inputs("llava_onevision", "video", 3)
    expected = matrix.reference("qwen2_5_vl", "image", 3, 15)
    method = sooner.Speculative(draft, num_draft_tokens=3, draft_inputs=draft_inputs)
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
