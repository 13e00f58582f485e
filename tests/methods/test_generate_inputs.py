"""Several sequences of a prompt, token types, prompts of text: read as `generate` reads them."""

from __future__ import annotations

import torch

import sooner
import tiny
from methods.doors import GREEDY


def test_token_types_may_be_left_to_generate() -> None:
    """Qwen's processors return them; a caller that drops them gets what `generate` would give."""
    inputs = tiny.inputs("qwen2_5_vl", "text", 2)
    assert "mm_token_type_ids" not in inputs
    inputs["mm_token_type_ids"] = torch.zeros_like(inputs["input_ids"])
    expected = tiny.model("qwen2_5_vl").generate(**inputs, **GREEDY)
    ours = sooner.generate(tiny.model("qwen2_5_vl"), inputs, sooner.PromptLookup(), **GREEDY)
    assert ours.sequences.tolist() == expected.tolist()


def test_a_text_prompt_after_a_picture_is_not_mispositioned() -> None:
    """Qwen models remember the last prompt's offset; the next prompt must not inherit it."""
    model, text = tiny.model("qwen2_5_vl"), tiny.inputs("qwen2_5_vl", "text", 2)
    before = sooner.generate(model, text, sooner.PromptLookup(), **GREEDY).sequences
    sooner.generate(model, tiny.inputs("qwen2_5_vl", "images", 1), **GREEDY)
    after = sooner.generate(model, text, sooner.PromptLookup(), **GREEDY).sequences
    assert torch.equal(before, after)
