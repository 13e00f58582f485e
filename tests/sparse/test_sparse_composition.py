"""Sparse prefills beside everything else: methods, drafts, taps, pruners, sampling."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sooner
import tiny
import tiny_canvas
from method_matrix import METHODS
from sooner.decoding.runner import ModelRunner
from sooner.errors import UnsupportedError
from sooner.methods.attention_tap import AttentionTap, asking_tokens
from sooner.models import adapt
from sooner.sparse.patterns import AShape, Dense
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


@pytest.mark.parametrize("method", ["noisy-4", "parallel", "sparse-to-dense", "sd-tree"])
def test_dense_tables_leave_every_method_exact(method: str) -> None:
    dense = sparse("qwen2_5_vl", *[Dense()] * 4)
    made = decode("qwen2_5_vl", dense, METHODS[method]("qwen2_5_vl"), rows=2)
    assert made.tokens == decode("qwen2_5_vl", None, rows=2).tokens
    assert made.stats.mode == "exact"


def test_a_sparse_draft_leaves_the_result_exact() -> None:
    draft = tiny.noisy("qwen2_5_vl")
    with sparse("qwen2_5_vl")(draft) as report:
        made = decode("qwen2_5_vl", None, sooner.Speculative(draft, num_draft_tokens=4), rows=2)
    assert report.last is not None
    assert not report.last.is_exact
    assert made.tokens == decode("qwen2_5_vl", None, rows=2).tokens
    assert made.stats.mode == "exact"


def test_target_and_draft_may_both_be_sparse() -> None:
    draft, target = tiny.noisy("qwen3_vl"), tiny.model("qwen3_vl")
    expected = decode("qwen3_vl", sparse("qwen3_vl")).tokens
    with sparse("qwen3_vl")(target) as ours, sparse("qwen3_vl")(draft) as theirs:
        made = decode("qwen3_vl", None, sooner.Speculative(draft, num_draft_tokens=4))
    assert made.tokens == expected
    assert len(ours.prefills) == len(theirs.prefills) == 1


@pytest.mark.parametrize("placement", ["inline", "thread", "process"])
def test_a_parallel_draft_runs_beside_a_sparse_target(placement: str) -> None:
    draft = tiny.noisy("qwen2_5_vl")
    method = sooner.ParallelVLM(draft, prune=0.5, least=0, num_draft_tokens=4, placement=placement)
    expected = decode("qwen2_5_vl", sparse("qwen2_5_vl")).tokens
    with sparse("qwen2_5_vl")(draft):
        assert decode("qwen2_5_vl", sparse("qwen2_5_vl"), method).tokens == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tap_records_the_same_on_sparse_and_dense_layers(family: str) -> None:
    """The states of the first layer are the same; what is heard is attention on all of them."""
    adapter = adapt(tiny.model(family))
    heard: list[torch.Tensor] = []
    for context in (None, sparse(family, *[AShape(1, 5)] * 4)):
        with torch.inference_mode():
            prompt = adapter.embed_prompt(prompt_of(family, 2))
            asking = asking_tokens(prompt.visual, prompt.lengths, 8)
            tap = AttentionTap(adapter.decoder, [0], asking, lambda _, s: heard.append(s))
            try:
                if context is None:
                    ModelRunner(adapter, prompt.width).prefill(prompt)
                else:
                    with context(tiny.model(family)):
                        ModelRunner(adapter, prompt.width).prefill(prompt)
            finally:
                tap.remove()
    torch.testing.assert_close(heard[0], heard[1], rtol=1e-5, atol=1e-6)


def test_drafts_ranked_by_attention_are_ranked_under_sparse_prefills() -> None:
    draft = tiny.noisy("qwen2_5_vl")
    method = sooner.ParallelVLM(
        draft, prune=0.5, least=0, num_draft_tokens=4, placement="inline", criterion="attention"
    )
    expected = decode("qwen2_5_vl", sparse("qwen2_5_vl")).tokens
    assert decode("qwen2_5_vl", sparse("qwen2_5_vl"), method).tokens == expected


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


def test_sampling_repeats_with_a_seed() -> None:
    options = {"do_sample": True, "seed": 5, "temperature": 0.8}
    first, second = (
        decode("qwen3_vl", sparse("qwen3_vl"), rows=2, **options).tokens for _ in range(2)
    )
    assert first == second


def test_beams_and_several_sequences_of_hf_prefill_sparse() -> None:
    model, inputs = tiny.model("qwen2_5_vl"), prompt_of("qwen2_5_vl", 2)
    options = {"max_new_tokens": 5, "eos_token_id": None, "do_sample": False, "num_beams": 3}
    with sparse("qwen2_5_vl", *[ALL] * 4)(model) as report:
        made = model.generate(**inputs, **options)
    assert torch.equal(made, model.generate(**inputs, **options))
    assert report.last is not None
    assert len(report.last.sparse) == 3


def test_a_model_without_transformers_attention_is_refused() -> None:
    """Cosmos calls its kernel itself."""
    model = tiny_canvas.cosmos_ar()
    refused = pytest.raises(UnsupportedError, match="AttentionInterface")
    with refused, sooner.MMInference.auto()(model):
        pass
