"""The acceptance ratio against incremental decoding."""

from __future__ import annotations

import pytest

import sooner
import tiny
from sooner.errors import SoonerError
from sooner_lab.bench.fidelity import acceptance_ratio

FAMILIES = ("llava_onevision", "qwen2_5_vl", "qwen3_vl")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_accepts_all_of_its_text_and_a_lossy_one_in_part(family: str) -> None:
    model, inputs = tiny.model(family), tiny.inputs(family, "video")
    options = {"max_new_tokens": 12, "eos_token_id": None}
    tokens = sooner.generate(model, inputs, **options).tokens[0]
    assert acceptance_ratio(model, inputs, tokens) == 1.0
    assert acceptance_ratio(model, inputs, tokens[:1]) == 1.0
    wrong = [*tokens[:5], (tokens[5] + 1) % 8, *tokens[6:]]
    assert acceptance_ratio(model, inputs, wrong) <= 11 / 12
    assert acceptance_ratio(model, inputs, wrong[:6]) == pytest.approx(5 / 6)


def test_several_prompts_or_no_text_are_refused() -> None:
    model = tiny.model("qwen3_vl")
    with pytest.raises(SoonerError, match="2 prompts"):
        acceptance_ratio(model, tiny.inputs("qwen3_vl", "video", 2), [1, 2])
    with pytest.raises(SoonerError, match="0 tokens"):
        acceptance_ratio(model, tiny.inputs("qwen3_vl", "video"), [])
