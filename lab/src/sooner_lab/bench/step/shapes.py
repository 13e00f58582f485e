"""Models that a step is counted on: the shape of Qwen2.5-7B without its memory, and a tiny one."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM, Qwen2Config

QWEN2_5_7B: dict[str, Any] = {
    "vocab_size": 152_064,
    "hidden_size": 3584,
    "intermediate_size": 18_944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131_072,
}
"""The shape of the text model of Qwen2.5-7B and Qwen2.5-VL-7B."""

TINY: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
}


def qwen2_5_7b(layers: int = 28) -> Any:
    """The text model in bf16; call it under `fake_cuda`, or it takes 15 GB.

    Args:
        layers: fewer for a quick look; bytes and operations are linear in them.
    """
    return _built(Qwen2Config(**{**QWEN2_5_7B, "num_hidden_layers": layers}), torch.bfloat16)


def tiny(layers: int = 4) -> Any:
    """A random model in fp32, with weights large enough to have opinions."""
    torch.manual_seed(0)
    model = _built(Qwen2Config(**{**TINY, "num_hidden_layers": layers}), torch.float32)
    for name, weights in model.named_parameters():
        if weights.ndim > 1:
            weights.data.normal_(0, 0.25 if "embed" in name else 0.12)
    return model


def _built(config: Qwen2Config, dtype: torch.dtype) -> Any:
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    return model.eval().requires_grad_(False)
