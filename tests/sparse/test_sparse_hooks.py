"""Hooks of a sparse prefill: on one model at a time, and all removed afterwards."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
from torch import nn
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import sooner
import tiny
from sooner.errors import SoonerError, UnsupportedError
from sooner.sparse.attention import Reference
from sparse.contexts import decode, prompt_of, sparse


def trace(model: nn.Module) -> tuple:
    """All that a context touches."""
    modules = list(model.modules())
    hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in modules)
    configs = [getattr(m, "config", None) for m in modules]
    names = [getattr(config, "_attn_implementation", None) for config in configs]
    replaced = sum("forward" in m.__dict__ for m in modules)
    tables = (sorted(ALL_ATTENTION_FUNCTIONS), sorted(ALL_MASK_ATTENTION_FUNCTIONS))
    return hooks, names, replaced, tables


class _Broken(Reference):
    name = "broken"

    def grid(self, *args: Any) -> None:
        raise ZeroDivisionError("broken on purpose")


def test_nothing_is_left_behind_even_after_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_failed_prefill_leaves_no_state_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    model, expected = tiny.model("qwen2_5_vl"), decode("qwen2_5_vl", sparse("qwen2_5_vl")).tokens
    with sparse("qwen2_5_vl")(model) as report:
        with monkeypatch.context() as patch:
            patch.setattr("sooner.sparse.prefill.context.choose_backend", lambda *_: _Broken())
            with pytest.raises(ZeroDivisionError):
                decode("qwen2_5_vl", None)
        assert not report.prefills
        assert decode("qwen2_5_vl", None).tokens == expected


def test_only_the_wrapped_model_s_decoder_is_touched() -> None:
    model, other = tiny.model("qwen2_5_vl"), tiny.noisy("qwen2_5_vl")
    with sparse("qwen2_5_vl")(model):
        assert model.config.vision_config._attn_implementation == "sdpa"
        assert model.config._attn_implementation == "sdpa"
        assert model.config.text_config._attn_implementation not in ("sdpa", "eager")
        assert other.config.text_config._attn_implementation == "sdpa"


def test_a_second_context_on_the_same_model_is_refused() -> None:
    model = tiny.model("llama")
    with sparse("llama")(model):
        before = trace(model)
        refused = pytest.raises(UnsupportedError, match="MMInference is at work on this Llama")
        with refused, sparse("llama")(model):
            pass
        assert trace(model) == before


def test_another_model_s_table_is_refused() -> None:
    before = trace(tiny.model("llama"))
    refused = pytest.raises(SoonerError, match="differs in model_type")
    with refused, sparse("qwen2_5_vl")(tiny.model("llama")):
        pass
    assert trace(tiny.model("llama")) == before


def test_a_copy_made_before_the_context_is_unaffected() -> None:
    """A copy of the model made before the context knows nothing of it."""
    model = copy.deepcopy(tiny.model("llama"))
    with sparse("llama")(tiny.model("llama")):
        run = partial(sooner.generate, model, prompt_of("llama"), max_new_tokens=3)
        assert run().stats.mode == "exact"
