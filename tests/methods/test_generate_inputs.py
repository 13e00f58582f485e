"""Several sequences of a prompt, token types, prompts of text: read as `generate` reads them."""

from __future__ import annotations

import pytest
import torch

import sooner
import tiny
from methods.doors import FAMILY, GREEDY, KIND, decode, methods


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("llama", "text"),
        ("qwen2_5_vl", "images"),
        ("qwen2_5_vl", "uneven"),
        ("qwen3_vl", "mixed"),
        ("qwen3_vl", "video"),
        ("llava_onevision", "image"),
        ("llava_onevision", "images"),
        ("llava_onevision", "video"),
        ("llava_onevision", "uneven"),
    ],
)
@pytest.mark.parametrize("name", ["plain", "speculative"])
def test_several_sequences_of_a_prompt_see_its_pixels(family: str, kind: str, name: str) -> None:
    """Only the best token may be drawn, so every copy must be the greedy sequence of its prompt."""
    model, inputs = tiny.model(family), tiny.inputs(family, kind, 2)
    method = sooner.Autoregressive() if name == "plain" else sooner.Speculative(
        tiny.noisy(family), num_draft_tokens=3
    )  # fmt: skip
    options = {"max_new_tokens": 6, "eos_token_id": None}
    greedy = model.generate(**inputs, **options, do_sample=False)
    drawn = sooner.generate(
        model, inputs, method, **options, do_sample=True, top_k=1, num_return_sequences=3
    )
    assert drawn.sequences.tolist() == greedy.repeat_interleave(3, 0).tolist()
    assert len(drawn.tokens) == 6


def test_token_types_may_be_left_to_generate() -> None:
    """Qwen's processors return them; a caller that drops them gets what `generate` would give."""
    inputs = tiny.inputs("qwen2_5_vl", "text", 2)
    assert "mm_token_type_ids" not in inputs
    inputs["mm_token_type_ids"] = torch.zeros_like(inputs["input_ids"])
    expected = tiny.model("qwen2_5_vl").generate(**inputs, **GREEDY)
    ours = sooner.generate(tiny.model("qwen2_5_vl"), inputs, sooner.PromptLookup(), **GREEDY)
    assert ours.sequences.tolist() == expected.tolist()


def test_a_text_prompt_behind_a_picture_is_not_mispositioned() -> None:
    """Qwen models remember the last prompt's offset; the next prompt must not inherit it."""
    model, text = tiny.model("qwen2_5_vl"), tiny.inputs("qwen2_5_vl", "text", 2)
    before = sooner.generate(model, text, sooner.PromptLookup(), **GREEDY).sequences
    sooner.generate(model, tiny.inputs("qwen2_5_vl", "images", 1), **GREEDY)
    after = sooner.generate(model, text, sooner.PromptLookup(), **GREEDY).sequences
    assert torch.equal(before, after)


def test_a_prompt_without_an_attention_mask_is_taken_whole() -> None:
    inputs = tiny.inputs(FAMILY, KIND)
    del inputs["attention_mask"]
    expected = tiny.model(FAMILY).generate(**inputs, **GREEDY)
    assert decode("session", methods()["speculative"], inputs, **GREEDY).tolist() == (
        expected.tolist()
    )
