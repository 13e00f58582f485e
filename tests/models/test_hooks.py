"""Forward hooks: which are called, in which order, and that all are removed."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import _get_current_function_mode_stack

from sooner.models.hooks import AttentionCall, AttentionHooks, ForwardHooks


class Attention(nn.Module):
    def forward(self, states: torch.Tensor, fails: bool = False) -> torch.Tensor:
        if fails:
            raise RuntimeError("no memory")
        return scaled_dot_product_attention(states, states + 1, states + 2)


class Failing(ForwardHooks):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def install(self) -> None:
        self.before(self.module, lambda *_: None)
        raise ValueError("half way")


def hooks_on(module: nn.Module) -> int:
    return len(module._forward_pre_hooks) + len(module._forward_hooks)


def in_thread(function: Any, *args: Any) -> None:
    thread = threading.Thread(target=function, args=args)
    thread.start()
    thread.join()


def test_none_stays_after_an_exception() -> None:
    module = nn.Linear(1, 1)

    def run() -> None:
        with ForwardHooks() as hooks:
            hooks.before(module, lambda *_: None)
            module(torch.zeros(1, 3))

    with pytest.raises(RuntimeError):
        run()
    with pytest.raises(ValueError, match="half way"), Failing(module):
        pass
    assert not hooks_on(module)
    assert not ForwardHooks.installed(module)


def test_attention_calls_are_seen_by_all_who_ask() -> None:
    attention, states = Attention(), torch.randn(1, 2, 3, 4)
    seen: list[AttentionCall | None] = []
    plain = attention(states)
    with AttentionHooks() as first, AttentionHooks() as two:
        for hooks in (first, two):
            hooks.around(attention, lambda _module, call, output: seen.append(call))
        assert torch.equal(attention(states), plain)
        in_thread(attention, states)
    assert len(seen) == 2
    for call in seen:
        assert call is not None
        assert torch.equal(call.keys, states + 1)
        assert torch.equal(call.values, states + 2)
        assert call.scale == 0.5
    assert not _get_current_function_mode_stack()
