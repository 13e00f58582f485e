"""The draft head of EAGLE-3: one layer on low, middle and high states of the target."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import (
    LlamaMLP,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)

from ...errors import SoonerError
from ..published import CONFIG, Weights
from .base import DraftHead, Rotation, check_sizes, whole_vocabulary
from .config import Eagle3Config
from .published import RENAMES, read_eagle3_config, save_eagle3


class Attention(nn.Module):
    """The projections of the layer; it is `DraftHead` that attends."""

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        wide, bias = 2 * config.hidden_size, config.attention_bias
        heads = config.num_attention_heads * config.head_dim
        kv_heads = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(wide, heads, bias=bias)
        self.k_proj = nn.Linear(wide, kv_heads, bias=bias)
        self.v_proj = nn.Linear(wide, kv_heads, bias=bias)
        self.o_proj = nn.Linear(heads, config.hidden_size, bias=bias)
        if config.qk_norm:
            self.q_norm = LlamaRMSNorm(config.head_dim, config.rms_norm_eps)
            self.k_norm = LlamaRMSNorm(config.head_dim, config.rms_norm_eps)


class Layer(nn.Module):
    """Holds the weights of the one layer, under their published names."""

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        self.input_layernorm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.hidden_norm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = LlamaMLP(config.llama())


class Eagle3Head(DraftHead):
    """Holds EAGLE-3's head (Li et al. 2025, section 3): it drafts tokens, not states of the target.

    Of the target it reads the states before three layers, `g = fc([low; middle; high])`. An entry
    is `g_i` with the embedding `e_{i+1}` of the token behind it; queries, keys and values are made
    of `[input_layernorm(e); hidden_norm(g)]`, and attention and MLP are added to `g` (or to its
    norm). What comes out is the state behind which the draft goes on, in place of `g`; `norm` and
    `lm_head` make logits of it, over all of the target's tokens or a reduced vocabulary.

    Args:
        config: sizes and options.
        has_embeddings: it has an embedding table of its own; else it uses the target's.
        has_lm_head: it has an LM head; else it uses the target's.
    """

    def __init__(
        self, config: Eagle3Config, has_embeddings: bool = False, has_lm_head: bool = True
    ) -> None:
        super().__init__()
        self.config = config
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = config.head_dim
        hidden, eps = config.hidden_size, config.rms_norm_eps
        read = 3 * (config.target_hidden_size or hidden)
        self.input_norm = LlamaRMSNorm(read, eps) if config.norm_before_fc else None
        self.fc: nn.Linear = nn.Linear(read, hidden, bias=config.fc_bias)
        self.layer = Layer(config)
        self.norm = LlamaRMSNorm(hidden, eps)
        drafted = config.draft_vocab_size or config.vocab_size
        self.lm_head = nn.Linear(hidden, drafted, bias=False) if has_lm_head else None
        self.embed_tokens = nn.Embedding(config.vocab_size, hidden) if has_embeddings else None
        self.rotary = LlamaRotaryEmbedding(config.llama())
        self.wants_positions = "mrope_section" in config.rope
        # What the target calls each token that is drafted, `[draft_vocab_size]`.
        self.register_buffer("token_ids", torch.arange(drafted), persistent=False)
        self.register_buffer("axes", _axes(config), persistent=False)

    token_ids: Tensor
    axes: Tensor | None

    @property
    def attention(self) -> Any:
        return self.layer.self_attn

    @property
    def vocab_size(self) -> int | None:
        return None if self.lm_head is None else len(self.token_ids)

    @property
    def needs_ids(self) -> bool:
        return self.embed_tokens is not None

    def layer_ids_for(self, adapter: Any) -> tuple[int, ...]:
        if self.config.layer_ids is not None:
            return self.config.layer_ids
        layers = int(adapter.layers)
        if layers < 4:
            raise SoonerError(
                f"the target has {layers} layers, and the draft head's config names none to read; "
                "EAGLE-3's own choice (2, n/2, n - 3) takes four or more: give layer_ids"
            )
        return (2, layers // 2, layers - 3)

    def check(self, adapter: Any) -> None:
        super().check(adapter)
        config, width = self.config, int(adapter.text_config.hidden_size)
        sizes = {"hidden_size": (config.target_hidden_size or config.hidden_size, width)}
        if self.embed_tokens is None or self.lm_head is None:
            sizes["width of embedding and head"] = (config.hidden_size, width)
        check_sizes("draft head", adapter, sizes)
        highest = int(self.token_ids.max())
        if self.lm_head is not None and highest >= adapter.vocab_size:
            raise SoonerError(
                f"draft head drafts token {highest}, the target's vocabulary ends at "
                f"{adapter.vocab_size - 1}; give the target that it was trained for"
            )

    def save_pretrained(self, folder: Path | str, dtype: torch.dtype | None = None) -> None:
        """Write `config.json` and `model.safetensors` in SpecForge's layout."""
        save_eagle3(self, folder, dtype)

    def placed(self, target: Any) -> DraftHead:
        head = super().placed(target)
        table, weight = getattr(target.embedding, "weight", None), self.embed_tokens
        if weight is None or not isinstance(table, Tensor) or weight.weight.shape != table.shape:
            return head
        if torch.equal(weight.weight.to(table.device, table.dtype), table):
            # Many files repeat the target's table, which need not lie in memory twice.
            head = copy.copy(head)
            head._modules = {**head._modules, "embed_tokens": None}
        return head

    def read(self, states: Tensor) -> Tensor:
        width: int = self.fc.in_features
        states = states[..., states.shape[-1] - width :].to(self.device, self.dtype)
        return self.fc(states if self.input_norm is None else self.input_norm(states))

    def embed(
        self, embeds: Tensor, ids: Tensor | None = None, visual: Tensor | None = None
    ) -> Tensor:
        if self.embed_tokens is None or ids is None:
            return embeds
        table = self.embed_tokens
        states = table(ids.to(self.device).clamp(0, table.num_embeddings - 1))
        if visual is None or embeds.shape[-1] != states.shape[-1]:
            return states
        return torch.where(
            visual.to(states.device)[..., None], embeds.to(states.device, states.dtype), states
        )

    def rotation(self, positions: Tensor) -> Rotation:
        """Also of positions by axis, `[axes, rows, entries]`, where `mrope_section` says which
        axis turns which part."""
        if self.axes is None:
            return super().rotation(positions)
        if positions.ndim == 2:
            positions = positions.expand(int(self.axes.max()) + 1, -1, -1)
        turned = positions[self.axes].permute(1, 2, 0).float()  # [rows, entries, head_dim / 2]
        angles = (turned * self.rotary.inv_freq.float()).repeat(1, 1, 2)[:, None]
        scale = self.rotary.attention_scaling
        return (angles.cos() * scale).to(self.dtype), (angles.sin() * scale).to(self.dtype)

    def fuse(self, embeds: Tensor, states: Tensor) -> Tensor:
        """Returns `[norm(e); norm(g); residual]`, `[rows, entries, 3 * hidden]`."""
        layer, states = self.layer, states.to(self.dtype)
        normed = layer.hidden_norm(states)
        residual = normed if self.config.norm_before_residual else states
        return torch.cat([layer.input_layernorm(embeds.to(self.dtype)), normed, residual], -1)

    def attention_input(self, fused: Tensor) -> Tensor:
        return fused[..., : 2 * self.config.hidden_size]

    def estimate(self, fused: Tensor, attended: Tensor) -> Tensor:
        layer = self.layer
        residual = fused[..., 2 * self.config.hidden_size :]
        states = residual + layer.self_attn.o_proj(attended.transpose(1, 2).flatten(2))
        return states + layer.mlp(layer.post_attention_layernorm(states))

    def drafted_logits(self, states: Tensor) -> Tensor:
        """Returns logits of the reduced vocabulary, `[rows, entries, draft_vocab_size]`."""
        assert self.lm_head is not None
        logits: Tensor = self.lm_head(self.norm(states))
        return logits

    def scores(self, states: Tensor, adapter: Any) -> Tensor:
        """Minus infinity for tokens that it can't draft."""
        if self.lm_head is None:
            return super().scores(self.norm(states), adapter)
        logits = self.drafted_logits(states).to(adapter.device)
        return whole_vocabulary(logits, self.token_ids, adapter.vocab_size)


def _axes(config: Eagle3Config) -> Tensor | None:
    """Axis of the position that turns each frequency, `[head_dim / 2]`, as in Qwen's M-RoPE."""
    section = config.rope.get("mrope_section")
    if section is None:
        return None
    if not config.rope.get("mrope_interleaved"):
        return torch.tensor([axis for axis, size in enumerate(section) for _ in range(size)])
    axes: Tensor = torch.zeros(config.head_dim // 2, dtype=torch.long)
    for axis in range(1, len(section)):
        axes[axis : len(section) * section[axis] : len(section)] = axis
    return axes


def load_eagle3(
    folder: Path, config: Mapping[str, Any], layer_ids: Iterable[int] | None = None
) -> Eagle3Head:
    """Returns an EAGLE-3 head in eval mode, fp32.

    Args:
        folder: with its weights.
        config: its config.json.
        layer_ids: `hidden_states` indices that it reads, in place of those that the config means.

    Raises:
        SoonerError: unknown, missing or misshapen tensors, or values out of range, by name.
        UnsupportedError: an option of the layout that can't be run.
    """
    weights = Weights.read(folder, "EAGLE-3 head", RENAMES)
    tensors = weights.tensors
    sizes = read_eagle3_config(config, set(tensors), folder / CONFIG)
    if layer_ids is not None:
        sizes = replace(sizes, layer_ids=tuple(layer_ids))
    if config.get("tie_word_embeddings") and "embed_tokens.weight" in tensors:
        tensors.setdefault("lm_head.weight", tensors["embed_tokens.weight"])
    has_lm_head = "lm_head.weight" in tensors or sizes.draft_vocab_size is not None
    head = Eagle3Head(sizes, "embed_tokens.weight" in tensors, has_lm_head)
    ids = weights.take_vocabulary(len(head.token_ids), sizes.vocab_size)
    weights.fill(head)
    if ids is not None:
        head.token_ids.copy_(ids)
    return head.eval()
