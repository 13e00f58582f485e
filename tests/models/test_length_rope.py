"""RoPE of every type, some of which depend on the length: ids are those of each row's own steps."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    InternVLConfig,
    InternVLForConditionalGeneration,
    MistralConfig,
    MistralForCausalLM,
    Qwen2_5_VLForConditionalGeneration,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import sooner
import tiny
from sooner.models import FAMILIES

SWITCH, LONGEST = 24, 96
HALF = 6  # of a head
TYPES: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": SWITCH},
    "longrope": {
        "short_factor": [1.0 + 0.1 * n for n in range(HALF)],
        "long_factor": [2.0 + n for n in range(HALF)],
        "original_max_position_embeddings": SWITCH,
    },
    "llama3": {
        "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": SWITCH,
    },
    "proportional": {"partial_rotary_factor": 0.5},
}  # fmt: skip
DEPENDENT = ("dynamic", "longrope")
LENGTHS = {"before": 7, "reaches": 17, "behind": 31}
OPTIONS: dict[str, Any] = {
    "max_new_tokens": 14, "eos_token_id": None, "pad_token_id": 0, "do_sample": False,
}  # fmt: skip


def text_config(kind: str) -> dict[str, Any]:
    rope = {"rope_type": kind, "rope_theta": 1e4, **TYPES[kind]}
    positions = SWITCH if kind == "dynamic" else LONGEST
    return {
        **tiny.TEXT, "num_hidden_layers": 2, "max_position_embeddings": positions,
        "rope_parameters": rope,
    }  # fmt: skip


def mistral(text: dict[str, Any]) -> Any:
    return MistralForCausalLM(MistralConfig(**text, sliding_window=None))


def gemma3(text: dict[str, Any]) -> Any:
    """Frequencies by kind of layer, of which one depends on the length."""
    ropes = {
        "full_attention": text.pop("rope_parameters"),
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
    }
    config = Gemma3TextConfig(**text, head_dim=12, sliding_window=16, rope_parameters=ropes)
    config.layer_types = ["sliding_attention", "full_attention"]
    return Gemma3ForCausalLM(config)


def internvl(text: dict[str, Any]) -> Any:
    vision = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "image_size": [28, 28],
        "num_attention_heads": 2, "patch_size": [7, 7],
    }  # fmt: skip
    text = {**text, "model_type": "qwen2"}
    return InternVLForConditionalGeneration(
        InternVLConfig(text_config=text, vision_config=vision, image_token_id=tiny.IMAGE)
    )


def qwen2_5_vl(text: dict[str, Any]) -> Any:
    """Positions of three axes."""
    config = tiny.BUILDERS["qwen2_5_vl"](text).config
    config.text_config.rope_parameters = {**text["rope_parameters"], "mrope_section": [1, 2, 3]}
    return Qwen2_5_VLForConditionalGeneration(config)


BUILDERS = {
    **{name: tiny.BUILDERS[name] for name in ("llama", "qwen2", "llava_onevision")},
    "qwen2_5_vl": qwen2_5_vl, "mistral": mistral, "gemma3": gemma3, "internvl": internvl,
}  # fmt: skip


def filled(built: Any) -> Any:
    generator = torch.Generator().manual_seed(0)
    for weights in built.parameters():
        if weights.ndim > 1:
            weights.data.normal_(0, 0.15, generator=generator)
    built.generation_config.eos_token_id = None
    return built.eval().double()


@functools.cache
def model(family: str, kind: str) -> Any:
    torch.manual_seed(0)
    return filled(BUILDERS[family](text_config(kind)))


def prompts() -> list[list[int]]:
    """Of each of `LENGTHS`; their words repeat, so that a lookup finds them."""
    generator = torch.Generator().manual_seed(3)
    words = torch.randint(0, 80, (5,), generator=generator).tolist()
    return [(words * 8)[:length] for length in LENGTHS.values()]


def batch(rows: list[list[int]]) -> dict[str, Any]:
    width = max(map(len, rows))
    return {
        "input_ids": torch.tensor([[tiny.PAD] * (width - len(row)) + row for row in rows]),
        "attention_mask": torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows]),
    }


@functools.cache
def expected(family: str, kind: str) -> list[list[int]]:
    """What each prompt's own `generate` says, by a model that has seen no other."""
    return [
        copy.deepcopy(model(family, kind)).generate(**batch([row]), **OPTIONS)[0, len(row) :].tolist()
        for row in prompts()
    ]


def method(name: str, target: Any) -> sooner.Method:
    return {
        "plain": lambda: sooner.Autoregressive(),
        "prompt-lookup": lambda: sooner.PromptLookup(num_draft_tokens=5),
        "itself": lambda: sooner.Speculative(target, num_draft_tokens=5),
        "tree": lambda: sooner.SDTree(target),
    }[name]()


@pytest.mark.parametrize("way", ["plain", "prompt-lookup", "itself", "tree"])
@pytest.mark.parametrize("kind", DEPENDENT)
@pytest.mark.parametrize("family", BUILDERS)
def test_rows_on_both_sides_of_the_switch_in_one_batch(family: str, kind: str, way: str) -> None:
    target = model(family, kind)
    assert (target.config.model_type in FAMILIES) == (family in tiny.FAMILIES)
    made = sooner.generate(target, batch(prompts()), method(way, target), **OPTIONS)
    assert made.tokens == expected(family, kind)
    assert made.stats.mode == "exact"
    if way == "itself":
        assert made.stats.mean_acceptance_length > 4


@pytest.mark.parametrize("kind", ["default", *ROPE_INIT_FUNCTIONS])
@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_every_type_of_transformers(family: str, kind: str) -> None:
    target = model(family, kind)
    for row, ids in zip(prompts(), expected(family, kind), strict=True):
        for way in ("prompt-lookup", "tree"):
            made = sooner.generate(target, batch([row]), method(way, target), **OPTIONS)
            assert made.tokens == [ids]
