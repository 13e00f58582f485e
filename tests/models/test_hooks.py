"""Hooks on attention: all who ask see a call, in their own thread, and are removed."""

from __future__ import annotations

import threading

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import _get_current_function_mode_stack

from sooner.models.hooks import AttentionCall, AttentionHooks


class Attention(nn.Module):
    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return scaled_dot_product_attention(states, states + 1, states + 2)


def test_attention_calls_are_seen_by_all_who_ask() -> None:
    attention, states = Attention(), torch.randn(1, 2, 3, 4)
    seen: list[AttentionCall | None] = []
    plain = attention(states)
    with AttentionHooks() as first, AttentionHooks() as two:
        for hooks in (first, two):
            hooks.around(attention, lambda _module, call, output: seen.append(call))
        assert torch.equal(attention(states), plain)
        thread = threading.Thread(target=attention, args=(states,))
        thread.start()
        thread.join()
    assert len(seen) == 2
    for call in seen:
        assert call is not None
        assert torch.equal(call.keys, states + 1)
        assert torch.equal(call.values, states + 2)
        assert call.scale == 0.5
    assert not _get_current_function_mode_stack()
