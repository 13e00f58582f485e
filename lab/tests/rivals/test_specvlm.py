"""SpecVLM gives the ids of `generate` and the model's distribution; its draft reads less."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import method_matrix as matrix
import sooner
import tiny
from covering import pairwise
from method_matrix import Case
from methods.doors import generate
from methods.test_baselines import VISUAL, samples_as_enumerated
from methods.test_exactness import check
from methods.test_sampled_ids import draws_rows_as_if_alone
from sooner.methods.sd_tree import STATIC_TREE
from sooner_lab.rivals.specvlm import SpecVLM, staged

NAME = "specvlm"
FACTORS = {**matrix.FACTORS, "method": (NAME,), "chunk": (None,)}


def specvlm(family: str) -> SpecVLM:
    return SpecVLM(tiny.noisy(family), STATIC_TREE, prune=0.5)


@pytest.mark.parametrize(
    "case", [Case(**cell) for cell in pairwise(FACTORS, matrix.allowed)], ids=str
)
def test_greedy_ids_equal_those_of_generate(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(matrix.METHODS, NAME, specvlm)
    check(case)


@pytest.mark.parametrize("paged", [False, True], ids=["slots", "pages"])
@pytest.mark.parametrize("family", VISUAL)
def test_rows_that_join_an_engine_get_those_ids_too(family: str, paged: bool) -> None:
    engine = sooner.Engine(tiny.model(family), specvlm(family), pages=80, paged=paged)
    requests = []
    for kind, rows in (("video", 2), ("image", 1), ("uneven", 3)):
        inputs = tiny.inputs(family, kind, rows)
        request = engine.add_request(inputs, max_new_tokens=17, eos_token_id=None, do_sample=False)
        requests.append((request, kind, rows, inputs["input_ids"].shape[1]))
        for _ in range(4):
            engine.step()
    engine.run()
    for request, kind, rows, width in requests:
        assert request.error is None
        assert request.tokens == matrix.reference(family, kind, rows, 17)[:, width:].tolist()


def test_samples_have_the_enumerated_distribution() -> None:
    family, branching = "qwen2_5_vl", ((3,), (2, 1, 1), (1, 1), (2,))
    samples_as_enumerated(family, SpecVLM(tiny.noisy(family), branching, prune=0.5))


@pytest.mark.parametrize("family", ["llama", "qwen2_5_vl"])
def test_a_row_is_drawn_in_a_batch_as_if_alone(family: str) -> None:
    draws_rows_as_if_alone(family, specvlm)


@pytest.mark.parametrize("focus", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.9, 1.0])
def test_staged_pruning_keeps_its_share(ratio: float, focus: float) -> None:
    scores = torch.rand(40, generator=torch.Generator().manual_seed(1)) ** 4
    indices = staged(scores, ratio, focus)
    assert indices.tolist() == sorted(set(indices.tolist()))
    assert len(indices) == max(1, round(40 * (1 - ratio)))
    assert focus == 0 or int(scores.argmax()) in indices


@pytest.mark.parametrize("family", VISUAL)
def test_the_draft_s_cache_shrinks_with_its_prompt(family: str) -> None:
    methods = [SpecVLM(tiny.noisy(family), STATIC_TREE, prune=prune) for prune in (0.0, 0.5, 0.9)]
    sizes = [generate(family, method, "mixed", 1).stats.draft_cache_bytes for method in methods]
    assert sizes[0] > sizes[1] > sizes[2]


@pytest.mark.parametrize("options", [{"prune": 1.2}, {"focus": -0.1}], ids=["prune", "focus"])
def test_bad_options_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(sooner.SoonerError, match=next(iter(options))):
        SpecVLM(None, **options)
