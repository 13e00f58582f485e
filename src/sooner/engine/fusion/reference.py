"""What the fused operators compute, as transformers computes it."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float, is_gemma: bool) -> Tensor:
    """`LlamaRMSNorm`, or `GemmaRMSNorm`, which adds 1 to its weight and rounds at the end.

    Args:
        x: `[..., width]`.
        weight: `[width]`.
    """
    states = x.float()
    if is_gemma:
        normed = states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + eps)
        return (normed * (1.0 + weight.float())).type_as(x)
    states = states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + eps)
    return weight * states.to(x.dtype)


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, is_gemma: bool
) -> tuple[Tensor, Tensor]:
    """Returns `residual + x`, and its norm."""
    total = residual + x
    return total, rms_norm(total, weight, eps, is_gemma)


def rope(queries: Tensor, keys: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Rotates queries and keys as Llama's `apply_rotary_pos_emb` does.

    Args:
        queries, keys: `[rows, heads, entries, dim]`, each with heads of its own.
        cos, sin: `[rows or 1, entries, dim]`.
    """
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return turn(queries, cos, sin), turn(keys, cos, sin)


def turn(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Returns queries or keys `[rows, heads, entries, dim]` rotated by angles `[rows or 1, 1,
    entries, dim]`."""
    return states * cos + _half_turned(states) * sin


def _half_turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)
