"""The two doors, `sooner.generate` and `generate(custom_generate=...)`, and methods for both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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


DOORS = ("session", "custom_generate")
both_doors = pytest.mark.parametrize("door", DOORS)


@contextmanager
def refused(error: type[Exception], *words: str) -> Iterator[None]:
    """Expects an error of one line with all of `words`."""
    with pytest.raises(error) as caught:
        yield
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text, text


def generate(
    family: str, method: Any, kind: str, rows: int, new: int = 15, **options: Any
) -> sooner.Generation:
    """Decodes greedily and to the last token, if `options` don't say otherwise."""
    options = {"eos_token_id": None, "do_sample": False, **options}
    inputs = tiny.inputs(family, kind, rows)
    return sooner.generate(tiny.model(family), inputs, method, max_new_tokens=new, **options)
