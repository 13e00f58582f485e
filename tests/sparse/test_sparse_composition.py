"""Sparse prefills beside everything else: methods, drafts, taps, pruners, sampling."""

from __future__ import annotations

from typing import Any

import pytest

import sooner
import tiny
import tiny_canvas
from method_matrix import METHODS
from sooner.errors import UnsupportedError
from sooner.sparse.patterns import AShape
from sparse.contexts import ALL, FAMILIES, decode, prompt_of, sparse

PRUNERS = {
    "fastv": sooner.FastV(ratio=0.6),
    "pyramid-drop": sooner.PyramidDrop(ratio=0.5),
    "dycoke": sooner.DyCoke(ratio=0.6, decode_ratio=0.0),
    "visionzip": sooner.VisionZip(dominant=2, contextual=1),
}


SHOWN = ("prompt-lookup", "noisy-4", "noisy-auto", "words-only", "parallel", "sd-tree", "onsd",
         "specvlm", "jacobi-4", "sparse-to-dense")  # fmt: skip


def cases() -> list[tuple[str, str]]:
    """Every method once, families in turn."""
    return [(method, FAMILIES[i % len(FAMILIES)]) for i, method in enumerate(SHOWN)]


@pytest.mark.parametrize(("method", "family"), cases())
def test_methods_on_a_sparse_target_say_what_it_says_alone(method: str, family: str) -> None:
    """Drafts prefill densely, and keys and values of the target are the sparse prefill's."""
    rows = 2
    expected = decode(family, sparse(family), rows=rows)
    made = decode(family, sparse(family), METHODS[method](family), rows=rows)
    assert made.tokens == expected.tokens
    assert made.stats.mode == "approximate"


@pytest.mark.parametrize("name", PRUNERS)
def test_pruners_inside_and_outside_agree(name: str) -> None:
    """Patterns hold for the tokens that are left; patterns for all pairs change nothing."""
    pruner, model = PRUNERS[name], tiny.model("qwen2_5_vl", layers=6)
    inputs = prompt_of("qwen2_5_vl")
    options: dict[str, Any] = {"max_new_tokens": 6, "eos_token_id": None}
    pruned = sooner.generate(model, inputs, prefill=pruner, **options)
    for pattern in (ALL, AShape(4, 20)):
        context = sooner.MMInference.uniform(pattern)
        with context(model):
            inside = sooner.generate(model, inputs, prefill=pruner, **options)
        with pruner(model):
            outside = sooner.generate(model, inputs, prefill=context, **options)
        assert inside.tokens == outside.tokens
        assert any("MMInference" in note for note in inside.stats.notes)
        assert any(type(pruner).__name__ in note for note in inside.stats.notes)
        assert (inside.tokens == pruned.tokens) or pattern is not ALL


def test_a_model_without_transformers_attention_is_refused() -> None:
    """Cosmos calls its kernel itself."""
    model = tiny_canvas.cosmos_ar()
    refused = pytest.raises(UnsupportedError, match="AttentionInterface")
    with refused, sooner.MMInference.auto()(model):
        pass
