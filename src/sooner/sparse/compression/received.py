"""Attention that each token of a vision tower gets, recomputed beside a fused kernel.

Only one layer is looked at, one frame at a time and a bounded number of queries at a time, so no
attention map of the whole tower is ever there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

CHUNK = 1 << 25
"""Attention weights held at once; 128 MB in fp32."""


def received(queries: Tensor, keys: Tensor, scale: float, from_first: bool = False) -> Tensor:
    """Mean over heads and queries of the attention on each key of a frame, `[tokens]` in fp32.

    Args:
        queries, keys: `[heads, tokens, head_dim]`.
        scale: of the scores.
        from_first: count the attention of the first token (CLS) alone.
    """
    heads, tokens = queries.shape[:2]
    asked = queries[:, :1] if from_first else queries
    keys = keys.float().transpose(1, 2)
    total = keys.new_zeros(tokens)
    for some in asked.split(max(CHUNK // (heads * tokens), 1), 1):
        total += (some.float() @ keys * scale).softmax(-1).sum((0, 1))
    return total / (heads * asked.shape[1])


def separate(module: Any, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys `[tokens, heads, head_dim]` of an attention with `q_proj` and `k_proj`."""
    shape = (len(hidden), -1, module.head_dim)
    return module.q_proj(hidden).view(shape), module.k_proj(hidden).view(shape)


def packed(module: Any, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys `[tokens, heads, head_dim]` of an attention with one `qkv`, unrotated."""
    states = module.qkv(hidden).reshape(len(hidden), 3, module.num_heads, -1)
    return states[:, 0], states[:, 1]


def rotated(states: Tensor, rotary: Sequence[Tensor]) -> Tensor:
    """`states [tokens, heads, head_dim]` under the tower's rotary positions, in fp32."""
    cos, sin = (part.float()[:, None] for part in rotary)  # [tokens, 1, head_dim]
    states = states.float()
    first, second = states.chunk(2, dim=-1)
    return states * cos + torch.cat([-second, first], -1) * sin
