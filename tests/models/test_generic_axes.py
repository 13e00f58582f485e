"""The generic adapter with positions of several axes, and with windows or chunks."""

from __future__ import annotations

import copy
import types
from typing import Any

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

import sooner
import tiny
from sooner import PromptLookup
from sooner.engine.runner import ModelRunner
from sooner.engine.tree import Tree
from sooner.errors import UnsupportedError
from sooner.methods.draft_module import DraftConfig
from sooner.models import adapt
from zoo import laws, words
from zoo.laws import ROWS
from zoo.plain import TEXT
from zoo.species import filled, model_of
from zoo.zoo import ZOO

NEW: dict[str, Any] = {"max_new_tokens": 12, "eos_token_id": None, "pad_token_id": 0}


AUDIO_TOKENS = {"qwen2_5_omni_thinker": 10, "qwen3_omni_moe_thinker": 5}
"""Tokens of forty frames of sound."""


def inputs(name: str, kind: str, rows: int = laws.ROWS) -> dict[str, Any]:
    return ZOO[name].inputs(model_of(ZOO[name]), kind, rows, 0)


@pytest.mark.parametrize("name", ["qwen3_vl_moe", "ernie4_5_vl_moe"])
@pytest.mark.parametrize("kind", ["image", "video"])
def test_prompts_with_extras_can_be_repeated_and_prefilled_in_chunks(name: str, kind: str) -> None:
    """Deepstack features and the experts of pictures belong to tokens, wherever these go."""
    model, batch = model_of(ZOO[name]), inputs(name, kind)
    expected = [row[: NEW["max_new_tokens"]] for row in laws.reference(ZOO[name], kind)]
    chunked = sooner.generate(model, batch, do_sample=False, prefill_chunk_size=5, **NEW)
    assert chunked.tokens == expected
    adapter = adapt(model)
    prompt = adapter.embed_prompt(batch)
    assert prompt.extras
    twice = adapter.repeat_prompt(prompt, 2)
    for key, part in adapter.cut_extras(prompt, 2, 9).items():
        both = adapter.cut_extras(twice, 2, 9)[key]
        if isinstance(part, list):  # features of visual tokens, row by row
            assert [len(feature) for feature in both] == [2 * len(feature) for feature in part]
        else:
            assert torch.equal(both[::2], part)
            assert torch.equal(both[1::2], part)


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_omni_thinker", "glm4v"])
def test_what_a_model_remembers_of_the_last_prompt_changes_nothing(name: str) -> None:
    """These keep how far the last prompt's positions fell behind its length."""
    model = model_of(ZOO[name])
    for kind, rows in (("video", 3), ("text", 2), ("image", 1), ("text", 1)):
        batch = inputs(name, kind, rows)
        tokens = sooner.generate(model, batch, do_sample=False, **NEW).tokens
        width = batch["input_ids"].shape[1]
        assert tokens == model.generate(**batch, do_sample=False, **NEW)[:, width:].tolist(), kind
        custom = model.generate(**batch, do_sample=False, custom_generate=PromptLookup(), **NEW)
        assert custom[:, width:].tolist() == tokens


@pytest.mark.parametrize("name", ["qwen2_5_omni_thinker", "qwen3_omni_moe_thinker"])
def test_omni_models_use_audio(name: str) -> None:
    model, length, rows = model_of(ZOO[name]), 40, 2
    span = [words.AUDIO + 1, *[words.AUDIO] * AUDIO_TOKENS[name], words.AUDIO + 2]
    batch, items = words.prompts("image", rows, 3, lambda item: span)
    sounds = words.pixels(len(items), model.config.audio_config.num_mel_bins, length, seed=3)
    batch["input_features"] = 30 * sounds  # loud, as the tiny tower hardly hears
    batch["feature_attention_mask"] = torch.ones(len(items), length, dtype=torch.long)
    expected = model.generate(**batch, do_sample=False, **NEW)
    result = sooner.generate(model, batch, PromptLookup(max_ngram=1), do_sample=False, **NEW)
    assert result.sequences.tolist() == expected.tolist()
    deaf = model.generate(**{**batch, "input_features": -30 * sounds}, do_sample=False, **NEW)
    assert deaf.tolist() != expected.tolist()


def test_a_video_is_checked_though_pictures_passed() -> None:
    """One that `generate` places otherwise than the model's own forward is refused."""
    model = filled(ZOO["qwen2_vl"])
    original = model._prepare_position_ids_for_generation

    def later(self: Any, ids: Any, more: dict[str, Any]) -> Any:
        places = original(ids, more)
        return places + 3 * (more.get("video_grid_thw") is not None) * (places > 5)

    model._prepare_position_ids_for_generation = types.MethodType(later, model)
    sooner.generate(model, inputs("qwen2_vl", "image"), do_sample=False, **NEW)
    with pytest.raises(UnsupportedError, match="otherwise than its own generate"):
        sooner.generate(model, inputs("qwen2_vl", "video"), do_sample=False, **NEW)


def test_axes_without_pixels_are_refused() -> None:
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
    model = MistralForCausalLM(MistralConfig(**TEXT, sliding_window=None, rope_parameters=rope))
    with pytest.raises(sooner.SoonerError, match="no pixels to place"):
        adapt(model.eval())


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


@pytest.mark.parametrize("name", [item for item in ("gemma4", "kimi_k25") if item in ZOO])
def test_memory_of_a_token_counts_each_layers_keys_and_values(name: str) -> None:
    adapter = adapt(model_of(ZOO[name]))
    inputs = ZOO[name].inputs(adapter.model, "text", ROWS, 0)
    with torch.inference_mode():
        prompt = adapter.embed_prompt(inputs)
        runner = ModelRunner(adapter, prompt.width)
        runner.prefill(prompt)
    stores = [store for layer in runner.cache.slot_layers for store in layer.stores]
    token = sum(store[0, :, 0].numel() * store.element_size() for store in stores)
    assert adapter.slot_bytes == token
    assert DraftConfig.like(adapter, target={}).head_dim == 8, "the first layer's"
    with pytest.raises(UnsupportedError, match="keys and values of several sizes"):
        sooner.Engine(adapter.model, pages=9, paged=True)
    assert sooner.Engine(adapter.model, memory=9 * 256 * token).pages == 9


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
