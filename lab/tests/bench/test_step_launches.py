"""How many kernels a layer launches, on fake CUDA tensors at the size of a real model: a gate."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from sooner.engine.acceptance import follow_choices
from sooner.engine.fusion import decoder
from sooner.models.generic import Generic
from sooner_lab.bench.step.engine import StaticSteps, chain
from sooner_lab.bench.step.guard import fake_cuda
from sooner_lab.bench.step.operations import Operations

SIZES = {
    "vocab_size": 1024, "hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14,
    "num_key_value_heads": 2, "head_dim": 64,
}  # fmt: skip
"""The shape of Qwen2.5-0.5B, which drafts."""

MAX_LAUNCHES = {"llama": 16, "qwen2": 16, "qwen3": 18}
"""Operations of a layer: 7 matrix products, 2 norms with their sums, RoPE, 2 writes of keys and
values, attention, and 2 of the MLP's gate; of Qwen3 the norms of queries and keys, too."""
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
    assert layer["sooner::add_rms_norm"] == 2
    assert layer["sooner::rope"] == 1
    assert layer["sooner::rms_norm"] == (2 if family == "qwen3" else 0)


def test_without_fusion_it_launches_more_than_twice_as_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decoder, "DEVICES", frozenset())
    assert of_a_layer("llama", 1).total() > 2 * MAX_LAUNCHES["llama"]
