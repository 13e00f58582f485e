"""Compiled forwards serve prompts of any length: caches have few capacities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

import sooner
import tiny
from method_matrix import METHODS

OPTIONS = {"backend": "eager", "fullgraph": True}
LENGTHS = (5, 9, 30, 61, 90, 120, 151, 180, 200, 240, 300, 350)
"""Tokens of prompts; with what follows them they need caches of 256 and of 384 slots."""


@pytest.fixture
def dynamo() -> Iterator[Any]:
    torch._dynamo.reset()
    counters.clear()
    yield lambda: counters["stats"]["unique_graphs"]
    torch._dynamo.reset()


def said(name: str, length: int, **options: Any) -> sooner.Generation:
    generator = torch.Generator().manual_seed(length)
    ids = torch.randint(0, 80, (1, length), generator=generator)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return sooner.generate(
        tiny.model("llama"), inputs, METHODS[name]("llama"), max_new_tokens=6, do_sample=False,
        eos_token_id=None, **options,
    )  # fmt: skip


def test_twelve_lengths_are_two_graphs(dynamo: Any) -> None:
    for length in LENGTHS:
        made = said("plain", length, compile=OPTIONS)
        assert made.tokens == said("plain", length).tokens, length
    assert dynamo() == 2


@pytest.mark.slow
def test_a_draft_is_compiled_as_well_and_not_for_each_length(dynamo: Any) -> None:
    """The target's blocks of 1, 4 and 8, and of the draft one token and two."""
    for length in LENGTHS[:6]:
        made = said("noisy-4", length, compile=OPTIONS)
        assert made.tokens == said("plain", length).tokens
    assert 3 <= dynamo() <= 5
