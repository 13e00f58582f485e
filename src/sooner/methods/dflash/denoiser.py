"""The DFlash drafter: a few bidirectional layers that denoise a block of tokens in one forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.qwen3.modeling_qwen3 import (
    Qwen3DecoderLayer,
    Qwen3RMSNorm,
    Qwen3RotaryEmbedding,
    rotate_half,
)

from ...errors import SoonerError
from ..eagle.target_print import check_target
from .config import DFlashConfig

Rotation = tuple[Tensor, Tensor]

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Told `(layer, queries [rows, heads, entries, dim], keys, values [rows, kv_heads, entries, dim])`
of a block; gives what its queries found, as the queries."""


class DFlashModel(nn.Module):
    """Drafts blocks from the target's states (DFlash, Chen et al. 2026, arXiv 2602.06036).

    An entry of the *context* is `hidden_norm(fc([s_1; ...; s_n]))` of a committed token, made from
    the target's states of n of its layers. It is the same for all layers, each of which makes keys
    and values of it; queries come from the block alone. The *block* is the embedding of the last
    committed token (the anchor, which the target has not forwarded yet) and of mask tokens; its
    entries see the whole context and, unless a layer is causal, each other. What the target's LM
    head makes of entry `i` is the marginal distribution of the token at place `i`.

    Positions number the tokens of a row, from 0, also for targets with M-RoPE: what is published
    for them (`rope_scaling` null; vLLM refuses M-RoPE drafters) trains it so.

    Args:
        config: sizes.
    """

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        self.config = config
        qwen3 = config.qwen3()
        self.fc = nn.Linear(config.states_width, config.hidden_size, bias=False)
        self.hidden_norm = Qwen3RMSNorm(config.hidden_size, config.rms_norm_eps)
        count = config.num_hidden_layers
        self.layers = nn.ModuleList(Qwen3DecoderLayer(qwen3, layer) for layer in range(count))
        self.norm = Qwen3RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rotary = Qwen3RotaryEmbedding(qwen3)
        self.embed_tokens: nn.Embedding | None = None  # the target's unless a file brings one
        self.lm_head: nn.Linear | None = None
        self.token_ids: Tensor | None  # what the target calls each drafted token, [draft vocab]
        self.register_buffer("token_ids", None, persistent=False)

    @property
    def slot_bytes(self) -> int:
        """Returns bytes of a token's keys and values in all layers."""
        config = self.config
        width = 2 * config.num_key_value_heads * config.head_dim
        return config.num_hidden_layers * width * self.dtype.itemsize

    @property
    def dtype(self) -> torch.dtype:
        return self.fc.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.fc.weight.device

    def context(self, states: Tensor) -> Tensor:
        """Returns entries of the context, `[rows, entries, hidden]`.

        Args:
            states: of the target's layers, side by side, `[rows, entries, layers * hidden]`.
        """
        return self.hidden_norm(self.fc(states.to(self.device, self.dtype)))

    def rotation(self, positions: Tensor) -> Rotation:
        """Returns cosines and sines of `positions [rows or 1, entries]`: `[rows or 1, 1,
        entries, dim]`.
        """
        cos, sin = self.rotary(self.fc.weight, positions)
        return cos[:, None], sin[:, None]

    def keys_values(self, layer: int, entries: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
        """Returns keys and values of a layer, `[rows, kv_heads, entries, dim]` each.

        Args:
            entries: of the context, or of the block as they enter this layer's attention,
                `[rows, entries, hidden]`.
        """
        attention: Any = self.layers[layer].self_attn
        keys = attention.k_norm(self._split(attention.k_proj(entries)))
        return _rotated(keys, rotation), self._split(attention.v_proj(entries))

    def denoise(self, embeds: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
        """Returns the states of blocks, `[rows, entries, hidden]`, for the LM head.

        Args:
            embeds: of their tokens, `[rows, entries, hidden]`.
            rotation: of their positions.
            attend: attention of a layer over the context and the blocks.
        """
        states = embeds.to(self.device, self.dtype) * self.config.input_embedding_scale
        for number, module in enumerate(self.layers):
            layer: Any = module
            entering = layer.input_layernorm(states)
            attention = layer.self_attn
            queries = attention.q_norm(self._split(attention.q_proj(entering)))
            keys, values = self.keys_values(number, entering, rotation)
            output = attend(number, _rotated(queries, rotation), keys, values)
            states = states + attention.o_proj(output.transpose(1, 2).flatten(2))
            states = states + layer.mlp(layer.post_attention_layernorm(states))
        return self.norm(states)

    def embed(self, tokens: Tensor, adapter: Any) -> Tensor:
        """Returns embeddings of `tokens [rows, entries]`: the target's, unless a file brought
        others.
        """
        if self.embed_tokens is None:
            return adapter.embed_tokens(tokens.to(adapter.device))
        return self.embed_tokens(tokens.to(self.device))

    def logits(self, states: Tensor, adapter: Any) -> Tensor:
        """Returns logits of denoised entries, `[rows, entries, vocab]`, by the target's ids.

        Those that a reduced vocabulary lacks are minus infinity.

        Args:
            states: `[rows, entries, hidden]`.
            adapter: the target's.
        """
        config = self.config
        if self.lm_head is None:
            logits = adapter.logits(states.to(adapter.dtype))
        else:
            logits = self.lm_head(states)
        logits = logits * config.output_multiplier
        if (cap := config.final_logit_softcapping) is not None and cap > 0:
            logits = (logits / cap).tanh() * cap
        if self.token_ids is None:
            return logits
        whole = logits.new_full((*logits.shape[:-1], adapter.vocab_size), -torch.inf)
        return whole.index_copy_(-1, self.token_ids, logits)

    def check(self, adapter: Any) -> None:
        """Refuse a target that this drafter was not trained for, as far as its config tells.

        Raises:
            SoonerError: names what differs.
        """
        config, name = self.config, type(adapter.model).__name__
        width, vocab = int(adapter.text_config.hidden_size), adapter.vocab_size
        wants = {
            "hidden_size": (config.target_hidden_size or config.hidden_size, width),
            "vocab_size": (config.vocab_size or vocab, vocab),
        }
        if self.embed_tokens is None or self.lm_head is None:
            wants["width of embedding and head"] = (config.hidden_size, width)
        for what, (expected, have) in wants.items():
            if expected != have:
                raise SoonerError(
                    f"DFlash drafter was trained for a target with {what} {expected}, but {name} "
                    "has "
                    f"{have}; give that target"
                )
        if self.embed_tokens is None and config.mask_token_id >= vocab:
            raise SoonerError(
                f"DFlash drafter has mask_token_id {config.mask_token_id}, but the vocabulary of "
                f"{name} ends at {vocab - 1}; resize the target's embedding as its card says"
            )
        if target := config.provenance.get("target"):
            check_target(target, adapter)

    def _split(self, states: Tensor) -> Tensor:
        """`[rows, entries, heads * dim]` to `[rows, heads, entries, dim]`.

        Norms of heads work on the last axis, so they may come behind it.
        """
        return states.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)


def _rotated(states: Tensor, rotation: Rotation) -> Tensor:
    cos, sin = rotation
    return states * cos + rotate_half(states) * sin
