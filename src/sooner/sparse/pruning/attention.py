"""Attention weights of a few queries, recomputed beside a fused kernel that never shows its own.

The keys are those that the layer has just cached; only the chosen queries are projected again, so
this costs O(queries * tokens) and no attention map is ever materialised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Seen:
    """What an attention module was given, kept until its weights are asked for.

    Attributes:
        module: the attention module, with `q_proj`, `head_dim` and `scaling`.
        hidden: its input, `[1, entries, hidden]`.
        rotary: cosine and sine of the entries, each `[1, entries, head_dim]`.
        keys: cached keys, those of the entries last, `[1, kv_heads, keys, head_dim]`.
    """

    module: Any
    hidden: Tensor
    rotary: tuple[Tensor, Tensor]
    keys: Tensor

    def weights(self, entries: Tensor) -> Tensor:
        """Attention of `entries` on every key, averaged over heads: `[len(entries), keys]`."""
        queries, keys = self._queries(entries), self.keys[0].float()
        groups = queries.shape[0] // keys.shape[0]
        grouped = queries.unflatten(0, (-1, groups))  # [kv_heads, groups, queries, head_dim]
        scores = grouped @ keys[:, None].transpose(2, 3) * self.module.scaling
        own = keys.shape[1] - self.hidden.shape[1] + entries  # [queries]: each one's own key
        later = torch.arange(keys.shape[1], device=keys.device) > own[:, None]
        return scores.masked_fill(later, -torch.inf).softmax(-1).mean((0, 1))

    def _queries(self, entries: Tensor) -> Tensor:
        """Rotated queries in fp32, `[heads, queries, head_dim]`."""
        states = self.module.q_proj(self.hidden[0, entries])
        states = states.unflatten(-1, (-1, self.module.head_dim))  # [queries, heads, head_dim]
        norm = getattr(self.module, "q_norm", None)
        states = (states if norm is None else norm(states)).transpose(0, 1)
        cos, sin = (part[0, entries] for part in self.rotary)
        return (states * cos + _turned(states) * sin).float()


def _turned(states: Tensor) -> Tensor:
    """The other half of a rotation by 90 degrees in every plane of RoPE."""
    first, second = states.chunk(2, dim=-1)
    return torch.cat([-second, first], -1)
