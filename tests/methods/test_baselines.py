"""The lossless baselines of ParallelVLM's table 1: trees, words alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

import sooner
import tiny
from fakes import ERROR, chi_square
from methods.doors import generate
from sooner.methods.base import Method
from sooner.methods.sd_tree import STATIC_TREE, SDTree
from sooner.methods.speculative import OnSD

VISUAL = ("llava_onevision", "qwen2_5_vl", "qwen3_vl")
METHODS: dict[str, Callable[[str], Method]] = {
    "sd-tree": lambda family: SDTree(tiny.noisy(family), STATIC_TREE),
    "sd-tree-top": lambda family: SDTree(tiny.noisy(family), STATIC_TREE, siblings="top"),
    "onsd": lambda family: OnSD(tiny.noisy(family)),
}


@pytest.mark.parametrize("family", VISUAL)
@pytest.mark.parametrize("kind", ["video", "uneven"])
def test_onsd_draft_never_sees_pixels(family: str, kind: str) -> None:
    """Other pixels, same words: the draft's own forward is the same."""
    draft = tiny.noisy(family)
    prompts = []
    hook = draft.get_decoder().register_forward_pre_hook(
        lambda _module, _args, kwargs: prompts.append(kwargs["inputs_embeds"]), with_kwargs=True
    )
    try:
        generate(family, OnSD(draft, num_draft_tokens=4), kind, 3)
    finally:
        hook.remove()
    ids, mask = (tiny.inputs(family, kind, 3)[name] for name in ("input_ids", "attention_mask"))
    words = (mask.bool() & ~torch.isin(ids, torch.tensor([tiny.IMAGE, tiny.VIDEO]))).sum(1)
    assert prompts[0].shape[1] == words.max()


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


@pytest.mark.parametrize("name", METHODS)
def test_real_models_sample_the_enumerated_distribution(name: str) -> None:
    """The words between draft and rule, on a real model."""
    samples_as_enumerated("qwen2_5_vl", METHODS[name]("qwen2_5_vl"))


def samples_as_enumerated(family: str, method: Method) -> None:
    """Checks what a method draws of a real model."""
    kind, length = "image", 4
    options = {"top_k": 2, "temperature": 1.2}
    inputs = tiny.inputs(family, kind, 1)
    expected = joint(family, inputs, options, length)
    many = {key: value.repeat(150, *[1] * (value.ndim - 1)) for key, value in inputs.items()}
    model, samples = tiny.model(family), []
    for seed in range(6):
        made = sooner.generate(
            model, many, method, max_new_tokens=length, eos_token_id=None, do_sample=True,
            seed=seed, **options,
        )  # fmt: skip
        samples.append(torch.tensor(made.tokens))
    assert chi_square(torch.cat(samples), expected) > ERROR


BAD: list[tuple[Callable[[], Method], str]] = [
    (lambda: SDTree(None, branching=()), "branching"),
    (lambda: SDTree(None, branching=((0,),)), "branching"),
    (lambda: SDTree(None, branching=((2,), (1, 1, 1))), "branching"),
    (lambda: SDTree(None, branching=((2,), (-1, 1))), "branching"),
    (lambda: SDTree(None, branching=((2, 1),)), "branching"),
    (lambda: SDTree(None, siblings="topp"), "did you mean 'top'"),
    (lambda: OnSD(None, num_draft_tokens=0), "num_draft_tokens"),
    (lambda: OnSD(None, num_draft_tokens="all"), "OnSD: num_draft_tokens"),
]


@pytest.mark.parametrize(("build", "word"), BAD, ids=itertools.count())
def test_bad_options_are_named(build: Callable[[], Method], word: str) -> None:
    with pytest.raises(sooner.SoonerError, match=word) as caught:
        build()
    assert "\n" not in str(caught.value)
