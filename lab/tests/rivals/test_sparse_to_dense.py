"""Sparse-to-Dense gives the ids of `generate` and the model's distribution."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sooner
import tiny
from method_matrix import LONG, reference
from methods.doors import generate
from methods.test_baselines import VISUAL, samples_as_enumerated
from sooner_lab.rivals.sparse_to_dense import SparseToDense

FOUR: dict[str, Any] = {"prune": 0.5, "num_draft_tokens": 4}


@pytest.mark.parametrize("options", [FOUR, {"prune": 0.5}], ids=["4", "auto"])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_greedy_ids_equal_those_of_generate(
    family: str, rows: int, options: dict[str, Any]
) -> None:
    for kind in tiny.kinds(family):
        expected = reference(family, kind, rows, LONG)
        made = generate(family, SparseToDense(**options), kind, rows, LONG)
        assert torch.equal(made.sequences, expected), kind


@pytest.mark.parametrize("pages", [{}, {"pages": 40, "paged": True}], ids=["slots", "pages"])
def test_rows_of_an_engine_get_those_ids_too(pages: dict[str, Any]) -> None:
    inputs = tiny.inputs("qwen2_5_vl", "video", 2)
    engine = sooner.Engine(tiny.model("qwen2_5_vl"), SparseToDense(**FOUR), **pages)
    options = {"max_new_tokens": 17, "eos_token_id": None, "do_sample": False}
    request = engine.add_request(inputs, **options)
    engine.run()
    assert request.error is None
    expected = reference("qwen2_5_vl", "video", 2, 17)
    assert request.tokens == expected[:, inputs["input_ids"].shape[1] :].tolist()


@pytest.mark.parametrize("family", VISUAL)
def test_a_full_sparse_cache_agrees_with_the_dense_cache(family: str) -> None:
    stats = generate(family, SparseToDense(9, prune=0.0), "uneven", 3, 21).stats
    assert stats.acceptance_histogram == {9: 6}
    assert stats.seconds["draft_prefill"] > 0


def test_samples_have_the_enumerated_distribution() -> None:
    samples_as_enumerated("qwen2_5_vl", SparseToDense(**FOUR))


@pytest.mark.parametrize("name", ["prune", "num_draft_tokens"])
def test_bad_options_are_named(name: str) -> None:
    with pytest.raises(sooner.SoonerError, match=name):
        SparseToDense(**{name: -1})
