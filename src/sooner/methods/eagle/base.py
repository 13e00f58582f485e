"""What all draft heads share: one decoder layer, asked for keys and queries apart."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.models.llama.modeling_llama import rotate_half

from ...engine.attention.block import Block
from ...engine.attention.context import block_attention
from ...errors import SoonerError
from ..target_print import check_target

Rotation = tuple[Tensor, Tensor]


class DraftModule(nn.Module):
    """Holds what trained drafters have in common: rotary positions, heads, a vocabulary.

    Attributes:
        config: its sizes.
        head_dim: width of a head of its attention.
        fc: what enters it from the target.
        rotary: transformers' module of its angles.
    """

    config: Any
    head_dim: int
    fc: nn.Linear
    rotary: Any

    @property
    def dtype(self) -> torch.dtype:
        return self.fc.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.fc.weight.device

    def rotation(self, positions: Tensor) -> Rotation:
        """Returns cosines and sines of `positions [rows or 1, entries]`: `[rows or 1, 1,
        entries, dim]`.
        """
        cos, sin = self.rotary(self.fc.weight, positions)
        return cos[:, None], sin[:, None]

    def _split(self, states: Tensor) -> Tensor:
        """Returns `[rows, entries, heads * head_dim]` as `[rows, heads, entries, head_dim]`."""
        return states.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        frequencies = self.rotary.inv_freq
        moved = super()._apply(fn, recurse)
        # Angles of far positions need fp32, whatever the weights are in.
        self.rotary.inv_freq = frequencies.to(moved.device)
        return moved


def rotated(states: Tensor, rotation: Rotation) -> Tensor:
    """Returns queries or keys `[rows, heads, entries, head_dim]` turned by angles of positions."""
    cos, sin = rotation
    return states * cos + rotate_half(states) * sin


def whole_vocabulary(logits: Tensor, ids: Tensor, vocab: int) -> Tensor:
    """Returns logits `[..., vocab]` of those of the tokens `ids`; others have minus infinity."""
    whole = logits.new_full((*logits.shape[:-1], vocab), -torch.inf)
    return whole.index_copy(-1, ids.to(logits.device), logits)


def check_sizes(kind: str, adapter: Any, sizes: Mapping[str, tuple[Any, Any]]) -> None:
    """Refuse a target of other sizes than a drafter was trained for.

    Args:
        kind: what the drafter is called.
        adapter: the target's.
        sizes: what the drafter expects and what the target has, by name.

    Raises:
        SoonerError: names the first that differs.
    """
    for name, (expected, actual) in sizes.items():
        if expected != actual:
            raise SoonerError(
                f"{kind} was trained for a target with {name} {expected}, but "
                f"{type(adapter.model).__name__} has {actual}; give that target"
            )


class DraftHead(DraftModule):
    """One decoder layer that goes on from a target's states.

    An entry is a state and the token behind it. `read` makes the head's own states of the target's,
    `fuse` an entry of such a state and an embedding, `keys_values` and `queries` what its attention
    takes, `estimate` the next state of its own, and `scores` the logits of what follows it.

    Keys and queries are asked for apart. Entries whose estimate is not read, such as those of a
    prompt, then cost their keys and values alone.

    Attributes:
        heads, kv_heads: of its attention.
        wants_positions: it takes the target's positions rather than counting tokens.
    """

    heads: int
    kv_heads: int
    wants_positions: bool = False

    @property
    def attention(self) -> Any:
        """Returns the module with `q_proj`, `k_proj`, `v_proj` and `o_proj`."""
        raise NotImplementedError

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
        return rotated(states, rotation)

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

    def _normed(self, states: Tensor, name: str) -> Tensor:
        norm = getattr(self.attention, name, None)
        return states if norm is None else norm(states)
