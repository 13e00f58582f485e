"""Trees that a draft model makes: distributions of what is sampled, levels, shapes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fake_models
import sooner
import tiny
from fake_models import FakeAdapter, generate_ids
from fakes import ERROR, Table, chi_square
from methods.baselines import METHODS, WIDE, generate
from sooner.methods import sd_tree
from sooner.methods.onsd import OnSD
from sooner.methods.sd_tree import SDTree
from sooner.methods.sparse_to_dense import SparseToDense
from sooner.methods.specvlm import SpecVLM
from sooner.methods.tree_draft import TreeShape

VOCAB, LENGTH, SAMPLES = 3, 5, 12_000
TARGET = Table(VOCAB, LENGTH, seed=1)
NEAR = Table(VOCAB, LENGTH, seed=2, near=TARGET)


@pytest.fixture
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_models.adapt_fakes(monkeypatch)
    monkeypatch.setattr(sd_tree, "adapt", lambda model: model)


SHAPES = {
    "default": sd_tree.STATIC_TREE,
    "wide": WIDE,
    "flat": ((3,),),
    "chain": ((1,), (1,), (1,)),
    "late-branch": ((1,), (3,), (0, 2, 1), (1, 0, 2)),
}


@pytest.mark.usefixtures("_fakes")
@pytest.mark.parametrize("siblings", ["drawn", "top"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_sampled_trees_follow_the_targets_joint_distribution(shape: Any, siblings: Any) -> None:
    method = SDTree(FakeAdapter(NEAR), branching=shape, siblings=siblings)
    samples = generate_ids(method, FakeAdapter(TARGET), SAMPLES, LENGTH)
    assert chi_square(samples, TARGET.joint()) > ERROR


@pytest.mark.usefixtures("_fakes")
@pytest.mark.parametrize("siblings", ["drawn", "top"])
@pytest.mark.parametrize("seed", [3, 9])
def test_forbidden_tokens_and_useless_drafts_keep_the_distribution(
    siblings: Any, seed: int
) -> None:
    target = Table(VOCAB, LENGTH, seed=seed, zeros=True)
    draft = Table(VOCAB, LENGTH, seed=seed + 1, zeros=True)
    method = SDTree(FakeAdapter(draft), branching=WIDE, siblings=siblings)
    samples = generate_ids(method, FakeAdapter(target), SAMPLES, LENGTH)
    assert chi_square(samples, target.joint()) > ERROR


SAMPLED = {
    "sd-tree": lambda family: SDTree(tiny.noisy(family), sd_tree.STATIC_TREE),
    "sd-tree-top": lambda family: SDTree(tiny.noisy(family), sd_tree.STATIC_TREE, siblings="top"),
    "onsd": lambda family: OnSD(tiny.noisy(family)),
    "specvlm": lambda family: SpecVLM(tiny.noisy(family), prune=0.5, branching=WIDE),
    "sparse-to-dense": lambda family: SparseToDense(prune=0.5, num_draft_tokens=3),
}


def joint(family: str, inputs: dict, options: dict, length: int) -> dict[tuple[int, ...], float]:
    """Probabilities of every sequence, by HF's own incremental decoding and its processors."""
    width, table = inputs["input_ids"].shape[1], {(): 1.0}
    for depth in range(length):
        longer = {}
        for prefix, chance in table.items():
            forced = [*prefix, -1]
            output = tiny.model(family).generate(
                **inputs, **options, max_new_tokens=depth + 1, eos_token_id=None, do_sample=True,
                output_scores=True, return_dict_in_generate=True,
                prefix_allowed_tokens_fn=lambda _row, ids, forced=forced: (
                    [forced[len(ids) - width]] if forced[len(ids) - width] >= 0 else list(range(96))
                ),
            )  # fmt: skip
            p = output.scores[-1][0].softmax(-1)
            longer |= {
                (*prefix, token): chance * p[token].item() for token in p.nonzero()[:, 0].tolist()
            }
        table = longer
    return table


@pytest.mark.parametrize("name", SAMPLED)
def test_real_models_sample_the_enumerated_distribution(name: str) -> None:
    """The words between draft, pruned prompt, sparse cache and rule, on a real model."""
    family, kind, length = "qwen2_5_vl", "image", 4
    options = {"top_k": 2, "temperature": 1.2}
    inputs = tiny.inputs(family, kind, 1)
    expected = joint(family, inputs, options, length)
    many = {key: value.repeat(150, *[1] * (value.ndim - 1)) for key, value in inputs.items()}
    model, method, samples = tiny.model(family), SAMPLED[name](family), []
    for seed in range(6):
        made = sooner.generate(
            model, many, method, max_new_tokens=length, eos_token_id=None, do_sample=True,
            seed=seed, **options,
        )  # fmt: skip
        samples.append(torch.tensor(made.tokens))
    assert chi_square(torch.cat(samples), expected) > ERROR


# Drafts


@pytest.mark.parametrize("kind", ["text", "uneven"])
def test_a_perfect_tree_is_accepted_to_its_depth(kind: str) -> None:
    """Every round five levels and the bonus: the draft's cache keeps the path it was told."""
    stats = generate(METHODS["sd-tree-itself"]("qwen3_vl"), "qwen3_vl", kind, 3, 19).stats
    assert stats.acceptance_histogram == {5: 9}
    assert stats.nfe == 4


def test_a_small_vocabulary_clips_a_shape() -> None:
    shape = TreeShape(((4,), (1, 1, 3, 1), (1, 1, 1)), maximum=2)
    assert shape.parents == [-1, -1, 0, 1, 2, 3]
