"""The generic adapter with positions of several axes: what it carries on, and what it refuses."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

import sooner
from sooner import PromptLookup
from sooner.errors import UnsupportedError
from sooner.models import adapt
from zoo import laws, words
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
