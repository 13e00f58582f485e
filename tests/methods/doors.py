"""The two doors, `sooner.generate` and `generate(custom_generate=...)`, and methods for both."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sooner
import tiny

FAMILY, KIND = "qwen3_vl", "video"
GREEDY = {"max_new_tokens": 14, "eos_token_id": None, "do_sample": False}


def methods() -> dict[str, sooner.Method]:
    return {
        "plain": sooner.Autoregressive(),
        "prompt-lookup": sooner.PromptLookup(),
        "speculative": sooner.Speculative(tiny.noisy(FAMILY), num_draft_tokens=4),
    }


def decode(door: str, method: sooner.Method, inputs: dict, **options: Any) -> torch.Tensor:
    model = tiny.model(FAMILY)
    if door == "session":
        return sooner.generate(model, inputs, method, **options).sequences
    return model.generate(**inputs, **options, custom_generate=method)


both_doors = pytest.mark.parametrize("door", ["session", "custom_generate"])
