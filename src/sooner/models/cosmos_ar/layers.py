"""One decoder layer of Cosmos' autoregressive models, and what it is made of."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.cache_utils import Cache

from .config import CosmosARConfig
from .rope import rotate


class CosmosRMSNorm(nn.Module):
    """Root-mean-square norm over the last axis, normalised in fp32, scaled in the states' dtype."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, states: Tensor) -> Tensor:
        normed = functional.rms_norm(states, states.shape[-1:], eps=self.eps)
        return normed * self.weight.to(states.dtype)


class CosmosAttention(nn.Module):
    """Grouped-query attention with normalised, rotated queries and keys."""

    def __init__(self, config: CosmosARConfig, layer_idx: int) -> None:
        super().__init__()
        assert config.head_dim is not None
        assert config.num_key_value_heads is not None
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim
        self.groups = config.num_attention_heads // config.num_key_value_heads
        queries = config.num_attention_heads * self.head_dim
        keys = config.num_key_value_heads * self.head_dim
        self.q_proj = nn.Linear(config.hidden_size, queries, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=False)
        norm = CosmosRMSNorm if config.use_qk_norm else _no_norm
        self.q_norm = norm(self.head_dim, config.rms_norm_eps)
        self.k_norm = norm(self.head_dim, config.rms_norm_eps)

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None = None,
        past_key_values: Cache | None = None,
    ) -> Tensor:
        """`[rows, entries, hidden]` to the same; the mask is bool or additive, or causal if `None`.

        Entries that continue a cache need a mask, unless there is only one.
        """
        heads = (*hidden_states.shape[:-1], -1, self.head_dim)
        query = self.q_norm(self.q_proj(hidden_states).view(heads)).transpose(1, 2)
        key = self.k_norm(self.k_proj(hidden_states).view(heads)).transpose(1, 2)
        value = self.v_proj(hidden_states).view(heads).transpose(1, 2)
        turn = [part.to(query.dtype) for part in position_embeddings]
        query, key = rotate(query, *turn), rotate(key, *turn)  # [rows, heads, entries, head_dim]
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        if attention_mask is not None and key.is_cuda:
            # No fast CUDA kernel takes grouped heads together with a mask.
            key, value = (part.repeat_interleave(self.groups, 1) for part in (key, value))
        attended = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=attention_mask,
            is_causal=attention_mask is None and query.shape[2] > 1,
            enable_gqa=key.shape[1] < query.shape[1],
        )
        return self.o_proj(attended.transpose(1, 2).flatten(2))


class CosmosMLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: CosmosARConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(states)) * self.up_proj(states))


class CosmosLayer(nn.Module):
    """Attention and MLP, each behind a norm and beside a residual."""

    def __init__(self, config: CosmosARConfig, layer_idx: int) -> None:
        super().__init__()
        self.self_attn = CosmosAttention(config, layer_idx)
        self.mlp = CosmosMLP(config)
        self.input_layernorm = CosmosRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = CosmosRMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, hidden_states: Tensor, **kwargs: Any) -> Tensor:
        """`[rows, entries, hidden]` to the same; keywords go to the attention."""
        hidden_states = hidden_states + self.self_attn(
            hidden_states=self.input_layernorm(hidden_states), **kwargs
        )
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


def _no_norm(size: int, eps: float) -> nn.Module:
    return nn.Identity()
