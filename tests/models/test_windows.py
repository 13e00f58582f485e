"""Layers that see a window or a chunk: by the attention of blocks, and by masks elsewhere."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import sooner
import tiny
from sooner.engine.runner import ModelRunner
from sooner.engine.tree import Tree
from sooner.models import adapt
from zoo.laws import ROWS
from zoo.species import model_of
from zoo.zoo import ZOO

PARENTS = [-1, 0, 0, 1, 3, 4, 5, 6, 7]
"""Deeper than a window of 8."""


def tree_logits(name: str, takes_blocks: bool, monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """Logits of a tree behind ragged prompts of words, of which one chunk each is 4 tokens."""
    species = ZOO[name]
    adapter = adapt(model_of(species))
    monkeypatch.setattr(type(adapter), "takes_blocks", takes_blocks)
    inputs = species.inputs(adapter.model, "text", ROWS, 0)
    with torch.inference_mode():
        prompt = adapter.embed_prompt(inputs)
        runner = ModelRunner(adapter, prompt.width + 1 + len(PARENTS))
        first = runner.prefill(prompt, chunk=4).logits
        nodes = [*range(20, 20 + len(PARENTS))]
        tree = Tree.from_lists([nodes] * ROWS, [PARENTS] * ROWS, str(adapter.device))
        roots = torch.tensor([7] * ROWS)
        return torch.cat([first, runner.forward_tree(roots, tree).logits], 1)


@pytest.mark.parametrize("name", [item for item in ("gemma4", "llama4") if item in ZOO])
def test_masks_hide_what_the_attention_of_blocks_hides(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_blocks = tree_logits(name, True, monkeypatch)
    assert torch.allclose(by_blocks, tree_logits(name, False, monkeypatch), atol=1e-9)


@pytest.mark.skipif("gemma4" not in ZOO, reason="the installed transformers has no Gemma 4")
def test_memory_of_a_token_counts_shared_layers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = adapt(model_of(ZOO["gemma4"]))
    inputs = ZOO["gemma4"].inputs(adapter.model, "text", ROWS, 0)
    with torch.inference_mode():
        prompt = adapter.embed_prompt(inputs)
        runner = ModelRunner(adapter, prompt.width)
        runner.prefill(prompt)
    stores = [store for layer in runner.cache.slot_layers for store in layer.stores]
    token = sum(store[0, :, 0].numel() * store.element_size() for store in stores)
    assert adapter.slot_bytes == token


@pytest.mark.skipif("llama4" not in ZOO, reason="the installed transformers has no Llama 4")
def test_text_that_llama_4_scales_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = adapt(model_of(ZOO["llama4"]))
    monkeypatch.setattr(adapter.text_config, "floor_scale", 8)
    assert adapter.max_positions == 7
    prompt = adapter.embed_prompt({"input_ids": torch.arange(3, 15)[None]})
    with pytest.raises(ValueError, match="scales queries from token 8 on"):
        ModelRunner(adapter, 16).prefill(prompt)


@pytest.mark.parametrize("name", [item for item in ("gemma3", "paligemma") if item in ZOO])
@pytest.mark.parametrize(
    "context", [sooner.MMInference(), sooner.FastV()], ids=lambda item: item.name
)
def test_sparse_prefills_and_pruners_refuse_what_they_do_not_know(name: str, context: Any) -> None:
    species = ZOO[name]
    model = model_of(species)
    inputs = species.inputs(model, "image", 1, 0)
    with pytest.raises(sooner.SoonerError, match=r"windows or chunks|see ahead"), context(model):
        model.generate(**inputs, max_new_tokens=2, custom_generate=sooner.Autoregressive())
    if isinstance(context, sooner.MMInference):
        with (
            pytest.raises(sooner.SoonerError, match=r"windows or chunks|see ahead"),
            context(model),
        ):
            model.generate(**inputs, max_new_tokens=2)


@pytest.mark.parametrize("takes_blocks", [True, False])
def test_a_family_with_a_special_adapter_and_a_window(
    takes_blocks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = copy.deepcopy(tiny.model("qwen2")).double()
    model.config.layer_types = ["sliding_attention", "full_attention", "sliding_attention"]
    model.config.sliding_window = 6
    model = type(model)(model.config).double().eval()
    monkeypatch.setattr(type(adapt(model)), "takes_blocks", takes_blocks)
    inputs = tiny.inputs("qwen2", rows=3)
    options = {"max_new_tokens": 24, "do_sample": False}
    expected = model.generate(**inputs, **options)
    model.set_attn_implementation("sdpa")
    draft = copy.deepcopy(model)
    for parameter in draft.parameters():
        parameter.data += 1e-3 * torch.randn_like(parameter)
    for method in (
        sooner.Autoregressive(), sooner.PromptLookup(), sooner.Speculative(draft, 8),
        sooner.SDTree(draft),
    ):  # fmt: skip
        assert torch.equal(model.generate(**inputs, **options, custom_generate=method), expected)
