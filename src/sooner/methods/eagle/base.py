"""What all draft heads share: one decoder layer, asked for keys and queries apart."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.models.llama.modeling_llama import rotate_half

from ...engine.attention.block import Block
from ...engine.attention.context import block_attention
from .target_print import check_target

Rotation = tuple[Tensor, Tensor]


class DraftHead(nn.Module):
    """One decoder layer that goes on from a target's states.

    An entry is a state and the token behind it. `read` makes the head's own states of the target's,
    `fuse` an entry of such a state and an embedding, `keys_values` and `queries` what its attention
    takes, `estimate` the next state of its own, and `scores` the logits of what follows it.

    Keys and queries are asked for apart. Entries whose estimate is not read, such as those of a
    prompt, then cost their keys and values alone.

    Attributes:
        config: its sizes.
        heads, kv_heads: of its attention.
        head_dim: width of one.
        wants_positions: it takes the target's positions rather than counting tokens.
        rotary: transformers' module of its angles.
    """

    config: Any

    heads: int
    kv_heads: int
    head_dim: int
    wants_positions: bool = False
    rotary: Any

    @property
    def attention(self) -> Any:
        """Returns the module with `q_proj`, `k_proj`, `v_proj` and `o_proj`."""
        raise NotImplementedError

    @property
    def dtype(self) -> torch.dtype:
        return self.attention.q_proj.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.attention.q_proj.weight.device

    @property
    def temperature(self) -> float:
        """Returns the temperature of its confidences under greedy decoding."""
        temperature: float = self.config.temperature
        return temperature

    @property
    def vocab_size(self) -> int | None:
        """Tokens that it can draft; `None` is all of the target's."""
        return None

    @property
    def needs_ids(self) -> bool:
        """Whether `embed` has to know which words the prompt's embeddings are of."""
        return False

    @property
    def default_top_k(self) -> int:
        """Continuations of a node by default; 1 makes chains."""
        return 8

    def layer_ids_for(self, adapter: Any) -> tuple[int, ...]:
        """`hidden_states` indices of a target that it reads; none is the last states alone.

        Raises:
            SoonerError: it does not know, for a target of so few layers.
        """
        return ()

    def placed(self, target: Any) -> DraftHead:
        """This head where a target is, and in its dtype; a copy if it has to move."""
        if (self.device, self.dtype) == (target.device, target.dtype):
            return self
        return copy.deepcopy(self).to(target.device, target.dtype)

    def check(self, adapter: Any) -> None:
        """Refuse a target that this head was not made for.

        Raises:
            SoonerError: names what differs.
        """
        if self.config.target:
            check_target(self.config.target, adapter)

    def with_provenance(self, provenance: dict[str, Any], temperature: float) -> Self:
        """Returns this head, whose config says how it came about, and how sure it may be."""
        self.config = replace(self.config, provenance=provenance, temperature=temperature)
        return self

    def read(self, states: Tensor) -> Tensor:
        """Returns the head's own states, `[rows, entries, hidden]`, of the target's."""
        return states

    def embed(
        self, embeds: Tensor, ids: Tensor | None = None, visual: Tensor | None = None
    ) -> Tensor:
        """Embeddings as the head takes them, `[rows, entries, hidden]`.

        Args:
            embeds: the target's.
            ids: their tokens, `[rows, entries]`, where `needs_ids`.
            visual: which of them are pixels, `[rows, entries]` bool.
        """
        return embeds

    def rotation(self, positions: Tensor) -> Rotation:
        """Returns cosines and sines of `positions [rows or 1, entries]`: `[rows or 1, 1,
        entries, dim]`.
        """
        cos, sin = self.rotary(self.attention.q_proj.weight, positions)
        return cos[:, None], sin[:, None]

    def fuse(self, embeds: Tensor, states: Tensor) -> Tensor:
        """What enters the layer, `[rows, entries, width]`."""
        raise NotImplementedError

    def attention_input(self, fused: Tensor) -> Tensor:
        """The part of `fuse`'s entries that queries, keys and values are made of."""
        return fused

    def estimate(self, fused: Tensor, attended: Tensor) -> Tensor:
        """Returns the next states, `[rows, entries, hidden]`, from the layer's input and its
        attention.
        """
        raise NotImplementedError

    def scores(self, states: Tensor, adapter: Any) -> Tensor:
        """Returns logits behind the head's own states, `[rows, entries, the target's
        vocabulary]`.
        """
        logits: Tensor = adapter.logits(states.to(adapter.dtype))
        return logits

    def keys_values(self, fused: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
        """Returns keys and values of entries: `[rows, kv_heads, entries, head_dim]` each."""
        inputs = self.attention_input(fused)
        keys = self._normed(self._split(self.attention.k_proj(inputs)), "k_norm")
        return self.turned(keys, rotation), self._split(self.attention.v_proj(inputs))

    def queries(self, fused: Tensor, rotation: Rotation) -> Tensor:
        """Returns queries of entries: `[rows, heads, entries, head_dim]`."""
        queries = self._split(self.attention.q_proj(self.attention_input(fused)))
        return self.turned(self._normed(queries, "q_norm"), rotation)

    def turned(self, states: Tensor, rotation: Rotation) -> Tensor:
        """Returns queries or keys `[rows, heads, entries, head_dim]` at their positions."""
        cos, sin = rotation
        return states * cos + rotate_half(states) * sin

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attention with an additive mask `[rows or 1, 1, entries, slots]`; `None` hides nothing.

        Returns:
            `[rows, heads, entries, head_dim]`.
        """
        grouped = self.kv_heads != self.heads
        return scaled_dot_product_attention(queries, keys, values, mask, enable_gqa=grouped)

    def attend_block(self, queries: Tensor, keys: Tensor, values: Tensor, block: Block) -> Tensor:
        """A block's queries over the stores of a cache, `[rows, kv_heads, slots, dim]`.

        Returns:
            `[rows, heads, entries, head_dim]`.
        """
        return block_attention(queries, keys, values, block)

    def forward(
        self,
        embeds: Tensor,
        states: Tensor,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Every entry of whole rows: estimates `[rows, entries, hidden]`.

        Args:
            embeds: of the token behind each state, `[rows, entries, hidden]`.
            states: the target's, as long.
            mask: additive, `[rows or 1, 1, entries, entries]`; causal by default.
            positions: of the entries, as `rotation` takes them; by default they are counted.
        """
        fused = self.fuse(embeds, self.read(states))
        entries = fused.shape[1]
        if positions is None:
            positions = torch.arange(entries, device=fused.device)[None]
        rotation = self.rotation(positions)
        if mask is None:
            lowest = torch.finfo(fused.dtype).min
            mask = fused.new_full((entries, entries), lowest).triu(1)[None, None]
        keys, values = self.keys_values(fused, rotation)
        return self.estimate(fused, self.attend(self.queries(fused, rotation), keys, values, mask))

    def _split(self, states: Tensor) -> Tensor:
        """`[rows, entries, heads * head_dim]` to `[rows, heads, entries, head_dim]`."""
        return states.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def _normed(self, states: Tensor, name: str) -> Tensor:
        norm = getattr(self.attention, name, None)
        return states if norm is None else norm(states)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        frequencies = self.rotary.inv_freq
        moved = super()._apply(fn, recurse)
        # Angles of far positions need fp32, whatever the weights are in.
        self.rotary.inv_freq = frequencies.to(moved.device)
        return moved
