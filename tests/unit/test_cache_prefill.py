"""What a slot cache says while a prompt goes through the layers, whole or in chunks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import tiny
from sooner.engine.cache import SlotCache
from sooner.engine.interface import Prompt
from sooner.engine.runner import ModelRunner
from sooner.errors import UnsupportedError
from sooner.models import adapt


def prompt(lengths: list[int]) -> Prompt:
    rows, width = len(lengths), max(lengths)
    return Prompt(
        embeds=torch.zeros(rows, width, 48),
        positions=torch.arange(width).expand(rows, -1),
        lengths=lengths,
        next_position=torch.tensor(lengths),
        visual=torch.zeros(rows, width, dtype=torch.bool),
    )


def test_a_listener_that_needs_the_whole_prompt_refuses_chunks() -> None:
    cache = SlotCache(1, 8)
    with pytest.raises(UnsupportedError) as error, cache.prefilling(prompt([2, 5]), 4):
        cache.require_whole("listening")
    assert str(error.value) == (
        "listening needs all 5 prompt tokens in one forward, but prefill_chunk_size=4 splits "
        "them; leave it unset"
    )


@torch.no_grad()
def test_a_prefill_that_fails_half_way_leaves_an_empty_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    adapter = adapt(tiny.model("llama"))
    runner, decode = ModelRunner(adapter, 12), adapter.decode

    def failing(embeds: Tensor, positions: Tensor, **kwargs: Any) -> Tensor:
        if int(positions[0, 0]) == 4:
            raise RuntimeError("the last chunk")
        return decode(embeds, positions, **kwargs)

    monkeypatch.setattr(adapter, "decode", failing)
    with pytest.raises(RuntimeError, match="the last chunk"):
        runner.prefill(prompt([2, 5]), 2)
    assert runner.cache.is_empty
    assert not runner.cache.is_prefilling
    monkeypatch.undo()
    again = runner.prefill(prompt([2, 5]), 2).logits
    assert torch.equal(again, ModelRunner(adapter, 12).prefill(prompt([2, 5]), 2).logits)
