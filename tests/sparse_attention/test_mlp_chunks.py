"""MLPs that run over pieces of a prompt give what they give over the whole of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import Qwen3MoeConfig
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

import tiny
from sooner.engine.runner import ModelRunner
from sooner.errors import SoonerError, UnsupportedError
from sooner.models import adapt
from sooner.sparse.mlp_chunks import chunked_mlps

CASES = [(family, tiny.kinds(family)[-1]) for family in tiny.FAMILIES]


def prefilled(family: str, kind: str) -> Tensor:
    adapter = adapt(tiny.model(family))
    prompt = adapter.embed_prompt(tiny.inputs(family, kind, 3))
    return ModelRunner(adapter, prompt.width).prefill(prompt).hidden


def mlps(model: Any) -> list[nn.Module]:
    return [layer.mlp for layer in adapt(model).decoder.layers]


def forwards(model: Any) -> list[dict[str, Any]]:
    """What stands on each MLP itself under the name `forward`."""
    return [{k: v for k, v in mlp.__dict__.items() if k == "forward"} for mlp in mlps(model)]


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
@pytest.mark.parametrize(("family", "kind"), CASES)
@torch.no_grad()
def test_states_stay_the_same(family: str, kind: str, size: int) -> None:
    expected = prefilled(family, kind)
    with chunked_mlps(tiny.model(family), size):
        cut = prefilled(family, kind)
    # One MLP is the same to 1e-6; the layers behind it carry its last bit on.
    torch.testing.assert_close(cut, expected, atol=5e-6, rtol=1e-6)


# Nothing is left behind


def leave(model: Any) -> None:
    with chunked_mlps(model, 3):
        assert all(forwards(model))


def fail_inside(model: Any) -> None:
    with pytest.raises(ZeroDivisionError), chunked_mlps(model, 3):
        raise ZeroDivisionError


def fail_in_a_layer(model: Any) -> None:
    handle = mlps(model)[1].up_proj.register_forward_pre_hook(_broken)
    try:
        with pytest.raises(ZeroDivisionError), chunked_mlps(model, 3):
            prefilled("qwen2_5_vl", "video")
    finally:
        handle.remove()


def _broken(_module: nn.Module, _args: tuple) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("way_out", [leave, fail_inside, fail_in_a_layer])
def test_on_exit_and_after_exceptions_the_layers_are_as_before(
    way_out: Callable[[Any], None],
) -> None:
    model = tiny.model("qwen2_5_vl")
    way_out(model)
    assert forwards(model) == [{}] * 3


# Refusals


def mixture() -> nn.Module:
    config = Qwen3MoeConfig(
        hidden_size=48, num_experts=2, num_experts_per_tok=1, moe_intermediate_size=8
    )
    return Qwen3MoeSparseMoeBlock(config)


@pytest.mark.parametrize("broken", ["mixture", "none"])
def test_a_layer_without_a_dense_mlp_is_refused_by_name_and_no_other_is_touched(
    broken: str,
) -> None:
    model = copy.deepcopy(tiny.model("llama"))
    last = model.model.layers[-1]
    if broken == "mixture":
        last.mlp = mixture()
    else:
        del last.mlp
    with pytest.raises(UnsupportedError) as caught, chunked_mlps(model, 3):
        pass
    names = ["Qwen3MoeSparseMoeBlock"] if broken == "mixture" else ["no mlp"]
    for word in ("LlamaForCausalLM", "LlamaDecoderLayer", "leave the context out", *names):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "forward" not in model.model.layers[0].mlp.__dict__


@pytest.mark.parametrize("size", [0, -1, 2.5, True, None])
def test_a_size_that_is_no_count_is_refused(size: Any) -> None:
    with pytest.raises(SoonerError, match="chunked_mlps: size is"), chunked_mlps(None, size):
        pass
