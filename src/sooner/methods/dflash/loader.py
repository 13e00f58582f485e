"""Reads and writes the weights of DFlash drafters, by the names under which they are published."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from ..published import WEIGHTS, Weights, write
from .config import DFlashConfig
from .denoiser import DFlashModel

__all__ = ["FUSED", "WEIGHTS", "load", "save"]

RENAMES = (("encoder.fc.", "fc."), ("encoder.output_norm_enc.", "hidden_norm."))
"""What transformers' assistants call them."""

FUSED = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}
"""Projections that vLLM keeps in one tensor, one below the other."""


def load(
    folder: Path | str, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> DFlashModel:
    """Returns a drafter from a folder of `config.json` and safetensors.

    Raises:
        SoonerError: files that can't be read; a tensor that is unknown, missing or of another
            shape, by its name.
        UnsupportedError: positions of several axes.
    """
    config = DFlashConfig.load(Path(folder))
    model, weights = DFlashModel(config), Weights.read(Path(folder), "DFlash drafter", RENAMES)
    _split(weights, config)
    for name in ("embed_tokens", "lm_head"):
        if (weight := weights.tensors.get(f"{name}.weight")) is not None:
            rows, width = weight.shape
            module = nn.Embedding(rows, width)
            setattr(
                model, name, module if name == "embed_tokens" else nn.Linear(width, rows, False)
            )
    drafted = config.draft_vocab_size or config.vocab_size
    if model.lm_head is not None:
        drafted = model.lm_head.out_features
    if drafted is not None:
        model.token_ids = weights.take_vocabulary(drafted, config.vocab_size)
    weights.fill(model)
    return model.to(device, dtype).eval()


def save(model: DFlashModel, folder: Path | str, dtype: torch.dtype | None = None) -> None:
    """Write `config.json` and `model.safetensors` in z-lab's layout, each whole or not at all.

    Args:
        dtype: of the file; by default the drafter's own.
    """
    write(folder, model.config.published(), model.state_dict(), dtype)


def _split(weights: Weights, config: DFlashConfig) -> None:
    """Split fused projections."""
    kv = config.num_key_value_heads * config.head_dim
    rows = {
        "self_attn.qkv_proj": [config.num_attention_heads * config.head_dim, kv, kv],
        "mlp.gate_up_proj": [config.intermediate_size] * 2,
    }
    for name, value in list(weights.tensors.items()):
        fused = next((key for key in FUSED if f".{key}." in name), None)
        if fused is not None and value.shape[0] == sum(rows[fused]):
            del weights.tensors[name]
            for part, piece in zip(FUSED[fused], value.split(rows[fused]), strict=True):
                weights.tensors[name.replace(fused, part)] = piece
