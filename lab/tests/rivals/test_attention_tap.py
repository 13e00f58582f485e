"""Attention that a prompt's text pays is that of the whole matrix; what the tap cannot see."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import sooner
import tiny
from memory.test_prefix_reuse import shares_nothing
from methods.doors import generate
from methods.test_baselines import VISUAL
from recorders import hook_count
from sooner.engine.row_sampling import SamplingParams
from sooner.errors import UnsupportedError
from sooner.models import adapt
from sooner_lab.rivals.attention_tap import AttentionTap
from sooner_lab.rivals.sparse_to_dense import SparseToDense
from sooner_lab.rivals.specvlm import SpecVLM
from sparse_attention.contexts import decode, sparse

METHODS: dict[str, Callable[[str], sooner.Method]] = {
    "specvlm": lambda family: SpecVLM(tiny.noisy(family), prune=0.5),
    "sparse-to-dense": lambda family: SparseToDense(prune=0.5),
}


@pytest.mark.parametrize("family", VISUAL)
@pytest.mark.parametrize("kind", ["video", "uneven"])
@torch.no_grad()
def test_scores_are_what_eager_attention_shows(family: str, kind: str) -> None:
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
        for scores in seen:  # each query token spreads a weight of one
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


@pytest.mark.parametrize("name", METHODS)
def test_hooks_are_gone_afterwards_even_after_an_error(name: str) -> None:
    family = "qwen2_5_vl"
    model = tiny.model(family)
    generate(family, None, "video", 1)  # transformers leaves hooks of its own
    before = hook_count(model)
    generate(family, METHODS[name](family), "video", 1)
    assert hook_count(model) == before
    breaks = model.get_decoder().layers[-1].register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        generate(family, METHODS[name](family), "video", 1)
    breaks.remove()
    assert hook_count(model) == before
    assert torch.overrides._len_torch_function_stack() == 0


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("family", ["llava_onevision", "qwen3_vl"])
def test_chunks_are_refused(family: str, name: str) -> None:
    decode(family, None)  # transformers puts hooks of its own on a model's first forward
    before = hook_count(tiny.model(family))
    with pytest.raises(UnsupportedError, match=r"needs all .*leave .*prefill_chunk_size unset"):
        decode(family, None, METHODS[name](family), prefill_chunk_size=5)
    assert hook_count(tiny.model(family)) == before


@pytest.mark.parametrize("name", METHODS)
def test_a_sparse_prefill_is_refused(name: str) -> None:
    family = "qwen2_5_vl"
    with pytest.raises(UnsupportedError, match=r"no dense attention .* leave the prefill context"):
        decode(family, sparse(family), METHODS[name](family))


@pytest.mark.parametrize("name", METHODS)
def test_an_engine_shares_nothing_of_a_prompt_and_reports_it(name: str) -> None:
    family, question = "qwen2_5_vl", tuple(range(5, 12))
    shares_nothing(family, METHODS[name](family), "listens to the whole prompt", question)
