"""The lossless baselines of ParallelVLM's table 1: trees, fewer visual tokens, words alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

import sooner
import tiny
from fakes import ERROR, chi_square
from methods.doors import generate
from recorders import hook_count
from sooner.engine.row_sampling import SamplingParams
from sooner.methods.attention_tap import AttentionTap
from sooner.methods.base import Method
from sooner.methods.sd_tree import STATIC_TREE, SDTree
from sooner.methods.speculative import OnSD
from sooner.methods.specvlm import SpecVLM, staged
from sooner.models import adapt

VISUAL = ("llava_onevision", "qwen2_5_vl", "qwen3_vl")
METHODS: dict[str, Callable[[str], Method]] = {
    "sd-tree": lambda family: SDTree(tiny.noisy(family), STATIC_TREE),
    "sd-tree-top": lambda family: SDTree(tiny.noisy(family), STATIC_TREE, siblings="top"),
    "onsd": lambda family: OnSD(tiny.noisy(family)),
    "specvlm": lambda family: SpecVLM(
        tiny.noisy(family), ((3,), (2, 1, 1), (1, 1), (2,)), prune=0.5
    ),
}


@pytest.mark.parametrize("family", VISUAL)
@pytest.mark.parametrize("kind", ["video", "uneven"])
@torch.no_grad()
def test_the_tap_hears_what_eager_attention_shows(family: str, kind: str) -> None:
    """Rows of attention from queries and keys alone equal those of the full matrix."""
    recorded: dict[str, list[torch.Tensor]] = {}
    for name, model in (("sdpa", tiny.model(family)), ("eager", tiny.eager(family))):
        adapter = adapt(model)
        inputs = tiny.inputs(family, kind, 3)
        prompt = adapter.embed_prompt(inputs)
        seen = recorded.setdefault(name, [])
        params = SamplingParams(max_new_tokens=2)
        context = SpecVLM(tiny.noisy(family)).session(model, inputs, params).drafter.context
        tap = AttentionTap(context, [0, 2], lambda _n, s, seen=seen: seen.append(s), queries=5)
        adapter.decode(prompt.embeds, prompt.positions, attention_mask=None, **prompt.extras)
        tap.remove()
        for scores in seen:  # each asking token spreads a weight of one
            assert scores.sum(-1).allclose(tap.valid.sum(1).float()[:, None], atol=1e-4)
    for ours, eager in zip(recorded["sdpa"], recorded["eager"], strict=True):
        torch.testing.assert_close(ours, eager, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("depth", [1, 2, 3])
@torch.no_grad()
def test_attention_is_reported_during_the_prefill(depth: int) -> None:
    family = "qwen3_vl"
    model, inputs = tiny.model(family), tiny.inputs(family, "uneven", 3)
    session = SpecVLM(tiny.noisy(family)).session(model, inputs, SamplingParams(max_new_tokens=20))
    context = session.drafter.context
    calls: list[tuple[torch.Tensor, int]] = []
    layers: list[int] = []
    hooks = [
        layer.register_forward_hook(lambda *_, number=number: layers.append(number))
        for number, layer in enumerate(context.target.decoder.layers)
    ]
    tap = AttentionTap(
        context, [depth - 1], lambda _, scores: calls.append((scores.mean(1), len(layers)))
    )
    session.target.prefill(session.prompt)
    for hook in (tap, *hooks):
        hook.remove()
    [(paid, when)] = calls
    assert when == depth - 1, "before layer L has ended"
    assert paid.shape == tap.visual.shape


@pytest.mark.parametrize("name", ["sd-tree", "onsd", "specvlm"])
def test_hooks_are_gone_afterwards_even_after_an_error(name: str) -> None:
    family = "qwen2_5_vl"
    model = tiny.model(family)

    before = hook_count(model)
    generate(family, METHODS[name](family), "video", 1)
    assert hook_count(model) == before
    last = model.get_decoder().layers[-1]
    breaks = last.register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        generate(family, METHODS[name](family), "video", 1)
    breaks.remove()
    assert hook_count(model) == before
    assert torch.overrides._len_torch_function_stack() == 0


@pytest.mark.parametrize("focus", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.9, 1.0])
def test_staged_pruning_keeps_its_share(ratio: float, focus: float) -> None:
    scores = torch.rand(40, generator=torch.Generator().manual_seed(1)) ** 4
    indices = staged(scores, ratio, focus)
    assert indices.tolist() == sorted(set(indices.tolist()))
    assert len(indices) == max(1, round(40 * (1 - ratio)))
    assert focus == 0 or int(scores.argmax()) in indices


@pytest.mark.parametrize("family", VISUAL)
def test_specvlm_drafts_from_a_shorter_prompt(family: str) -> None:
    """Draft caches shrink with the prompt, and nothing else changes."""
    methods = [SpecVLM(tiny.noisy(family), STATIC_TREE, prune=prune) for prune in (0.0, 0.5, 0.9)]
    sizes = [generate(family, method, "mixed", 1).stats.draft_cache_bytes for method in methods]
    assert sizes[0] > sizes[1] > sizes[2]


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
    """The words between draft, pruned prompt, sparse cache and rule, on a real model."""
    family, kind, length = "qwen2_5_vl", "image", 4
    options = {"top_k": 2, "temperature": 1.2}
    inputs = tiny.inputs(family, kind, 1)
    expected = joint(family, inputs, options, length)
    many = {key: value.repeat(150, *[1] * (value.ndim - 1)) for key, value in inputs.items()}
    model, method, samples = tiny.model(family), METHODS[name](family), []
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
    (lambda: SpecVLM(None, prune=1.2), "prune"),
    (lambda: SpecVLM(None, focus=-0.1), "focus"),
    (lambda: OnSD(None, num_draft_tokens=0), "num_draft_tokens"),
    (lambda: OnSD(None, num_draft_tokens="all"), "OnSD: num_draft_tokens"),
]


@pytest.mark.parametrize(("build", "word"), BAD, ids=itertools.count())
def test_bad_options_are_named(build: Callable[[], Method], word: str) -> None:
    with pytest.raises(sooner.SoonerError, match=word) as caught:
        build()
    assert "\n" not in str(caught.value)
