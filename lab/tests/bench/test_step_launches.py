"""How many kernels a layer launches, on fake CUDA tensors at the size of a real model: a gate."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from sooner.engine.acceptance import follow_choices
from sooner.models.generic import Generic
from sooner_lab.bench.step.engine import StaticSteps, chain
from sooner_lab.bench.step.guard import fake_cuda
from sooner_lab.bench.step.operations import Operations

SIZES = {
    "vocab_size": 1024, "hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14,
    "num_key_value_heads": 2, "head_dim": 64,
}  # fmt: skip
"""The shape of Qwen2.5-0.5B, which drafts."""

MAX_LAUNCHES = {"llama": 40, "qwen2": 40, "qwen3": 56}
"""Operations of a layer: transformers' own, two writes of keys and values, and attention."""
CONFIGS = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}


@pytest.fixture(autouse=True)
def _no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Qwen3 has the generic adapter, whose check of itself compares numbers that are not here."""
    monkeypatch.setattr(Generic, "prove", lambda *args: None)


def launched(family: str, layers: int, entries: int) -> Counter[str]:
    with fake_cuda(), torch.inference_mode():
        config = CONFIGS[family](**SIZES, num_hidden_layers=layers)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
        steps = StaticSteps(model, 1, 256, chain, follow_choices)
        with Operations() as operations:
            steps.run(entries)
    return operations.launched


def of_a_layer(family: str, entries: int) -> Counter[str]:
    return launched(family, 3, entries) - launched(family, 2, entries)


@pytest.mark.parametrize("entries", [1, 8])
@pytest.mark.parametrize("family", MAX_LAUNCHES)
def test_a_layer_launches_few_kernels(family: str, entries: int) -> None:
    layer = of_a_layer(family, entries)
    assert layer.total() <= MAX_LAUNCHES[family], layer
    assert layer["sooner::block_attention"] == 1
    assert layer["aten::scatter_"] == 2
    assert not {"aten::masked_fill", "aten::clone", "aten::index"} & layer.keys()
