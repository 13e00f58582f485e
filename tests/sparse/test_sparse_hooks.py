"""Hooks of a sparse prefill: on one model at a time, and all removed afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import tiny
from recorders import hook_count
from sooner.errors import SoonerError
from sooner.sparse.attention import Reference
from sparse.contexts import decode, sparse


def trace(model: nn.Module) -> tuple:
    """All that a context touches."""
    modules = list(model.modules())
    configs = [getattr(m, "config", None) for m in modules]
    names = [getattr(config, "_attn_implementation", None) for config in configs]
    replaced = sum("forward" in m.__dict__ for m in modules)
    tables = (sorted(ALL_ATTENTION_FUNCTIONS), sorted(ALL_MASK_ATTENTION_FUNCTIONS))
    return hook_count(model), names, replaced, tables


class _Broken(Reference):
    name = "broken"

    def grid(self, *args: Any) -> None:
        raise ZeroDivisionError("broken on purpose")


def test_nothing_is_left_even_after_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.model("qwen3_vl")
    before, tokens = trace(model), decode("qwen3_vl", None).tokens
    context = sparse("qwen3_vl", mlp_chunk=16)
    with context(model):
        assert trace(model) != before
        decode("qwen3_vl", None)
    assert trace(model) == before
    with pytest.raises(KeyboardInterrupt), context(model):
        raise KeyboardInterrupt
    assert trace(model) == before
    with monkeypatch.context() as patch:
        patch.setattr("sooner.sparse.prefill.context.choose_backend", lambda *_: _Broken())
        with pytest.raises(ZeroDivisionError):
            decode("qwen3_vl", context)
    assert trace(model) == before
    assert decode("qwen3_vl", None).tokens == tokens


def test_only_the_wrapped_model_s_decoder_is_touched() -> None:
    model, other = tiny.model("qwen2_5_vl"), tiny.noisy("qwen2_5_vl")
    with sparse("qwen2_5_vl")(model):
        assert model.config.vision_config._attn_implementation == "sdpa"
        assert model.config._attn_implementation == "sdpa"
        assert model.config.text_config._attn_implementation not in ("sdpa", "eager")
        assert other.config.text_config._attn_implementation == "sdpa"


def test_another_model_s_table_is_refused() -> None:
    before = trace(tiny.model("llama"))
    refused = pytest.raises(SoonerError, match="differs in model_type")
    with refused, sparse("qwen2_5_vl")(tiny.model("llama")):
        pass
    assert trace(tiny.model("llama")) == before
