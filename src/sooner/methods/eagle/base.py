"""What all draft heads share: one decoder layer, asked for keys and queries apart."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..draft_module import DraftModule, Rotation, rotated


class DraftHead(DraftModule):
    """One decoder layer that goes on from a target's states.

    An entry is a state and the token behind it. `read` makes the head's own states of the target's,
    `fuse` an entry of such a state and an embedding, `keys_values` and `queries` what its attention
    takes, `estimate` the next state of its own, and `scores` the logits of what follows it.

    Keys and queries are asked for apart. Entries whose estimate is not read, such as those of a
    prompt, then cost their keys and values alone.

    Attributes:
        layer: with `self_attn`, `mlp` and norms.
        wants_positions: it takes the target's positions rather than counting tokens.
        default_top_k: continuations of a node by default; 1 makes chains.
    """

    layer: Any
    wants_positions: bool = False
    default_top_k: int = 8

    @property
    def vocab_size(self) -> int | None:
        """Tokens that it can draft; `None` is all of the target's."""
        return None

    def layer_ids_for(self, adapter: Any) -> tuple[int, ...]:
        """`hidden_states` indices of a target that it reads; none is the last states alone.

        Raises:
            SoonerError: it does not know, for a target of so few layers.
        """
        return ()

    def read(self, states: Tensor) -> Tensor:
        """Returns the head's own states, `[rows, entries, hidden]`, of the target's."""
        return states

    def embed(
        self, embeds: Tensor, ids: Tensor | None = None, visual: Tensor | None = None
    ) -> Tensor:
        """Embeddings as the head takes them, `[rows, entries, hidden]`.

        Args:
            embeds: the target's.
            ids: their tokens, `[rows, entries]`, where it has a table of its own.
            visual: which of them are pixels, `[rows, entries]` bool.
        """
        return embeds

    def fuse(self, embeds: Tensor, states: Tensor) -> Tensor:
        """What enters the layer, `[rows, entries, width]`."""
        raise NotImplementedError

    def attention_input(self, fused: Tensor) -> Tensor:
        """The part of `fuse`'s entries that queries, keys and values are made of."""
        return fused

    def residual(self, fused: Tensor) -> Tensor:
        """The part of `fuse`'s entries that attention is added to, `[rows, entries, hidden]`."""
        return fused

    def estimate(self, fused: Tensor, attended: Tensor) -> Tensor:
        """Returns the next states, `[rows, entries, hidden]`, from the layer's input and its
        attention.
        """
        layer, flat = self.layer, attended.transpose(1, 2).flatten(2)
        states = self.residual(fused) + layer.self_attn.o_proj(flat)
        made: Tensor = states + layer.mlp(layer.post_attention_layernorm(states))
        return made

    def scores(self, states: Tensor, adapter: Any) -> Tensor:
        """Returns logits behind the head's own states, `[rows, entries, the target's
        vocabulary]`.
        """
        logits: Tensor = adapter.logits(states.to(adapter.dtype))
        return logits

    def keys_values(self, fused: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
        """Returns keys and values of entries: `[rows, kv_heads, entries, head_dim]` each."""
        inputs, attention = self.attention_input(fused), self.layer.self_attn
        keys = self._normed(self._split(attention.k_proj(inputs)), "k_norm")
        return self.turned(keys, rotation), self._split(attention.v_proj(inputs))

    def queries(self, fused: Tensor, rotation: Rotation) -> Tensor:
        """Returns queries of entries: `[rows, heads, entries, head_dim]`."""
        queries = self._split(self.layer.self_attn.q_proj(self.attention_input(fused)))
        return self.turned(self._normed(queries, "q_norm"), rotation)

    def turned(self, states: Tensor, rotation: Rotation) -> Tensor:
        """Returns queries or keys `[rows, heads, entries, head_dim]` at their positions."""
        return rotated(states, rotation)

    def _normed(self, states: Tensor, name: str) -> Tensor:
        norm = getattr(self.layer.self_attn, name, None)
        return states if norm is None else norm(states)
