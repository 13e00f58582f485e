"""A pruner's stages: what it is asked at each, and how tokens are ranked and kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.models.llama.modeling_llama import rotate_half


@dataclass(frozen=True)
class AttentionInputs:
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
        """Returns attention of `entries` on every key, a mean of heads: `[len(entries), keys]`."""
        queries, keys = self._queries(entries), self.keys[0].float()
        groups = queries.shape[0] // keys.shape[0]
        grouped = queries.unflatten(0, (-1, groups))  # [kv_heads, groups, queries, head_dim]
        scores = grouped @ keys[:, None].transpose(2, 3) * self.module.scaling
        offset = keys.shape[1] - self.hidden.shape[1] + entries  # [queries]: each one's own key
        later = torch.arange(keys.shape[1], device=keys.device) > offset[:, None]
        return scores.masked_fill(later, -torch.inf).softmax(-1).mean((0, 1))

    def _queries(self, entries: Tensor) -> Tensor:
        """Returns rotated queries in fp32, `[heads, queries, head_dim]`."""
        states = self.module.q_proj(self.hidden[0, entries])
        states = states.unflatten(-1, (-1, self.module.head_dim))  # [queries, heads, head_dim]
        norm = getattr(self.module, "q_norm", None)
        states = (states if norm is None else norm(states)).transpose(0, 1)
        cos, sin = (part[0, entries] for part in self.rotary)
        return (states * cos + rotate_half(states) * sin).float()


@dataclass(frozen=True)
class PruningStage:
    """The tokens that reach a layer in front of which some may be dropped.

    Attributes:
        number: which of the pruner's stages this is, from 0.
        depth: layers of the model.
        hidden: their states, `[tokens, hidden]`.
        places: their places in the prompt, ascending, `[tokens]`.
        visual: which of them came from pixels, `[tokens]` bool.
        total: visual tokens of the whole prompt.
        attention: attention in the layer before, of the given tokens on all tokens, averaged over
            heads: `[queries]` to `[queries, tokens]`.
        memo: what the pruner's `begin` returned.
    """

    number: int
    depth: int
    hidden: Tensor
    places: Tensor
    visual: Tensor
    total: int
    attention: Callable[[Tensor], Tensor]
    memo: Any


@dataclass(frozen=True)
class Selection:
    """What goes on behind a stage.

    Attributes:
        index: which of the stage's tokens, ascending, `[kept]`.
        hidden: their states where they are not simply those that came in, `[kept, hidden]`.
    """

    index: Tensor
    hidden: Tensor | None = None


def keep_best(visual: Tensor, scores: Tensor, count: int) -> Tensor:
    """Returns the places of all other tokens and of the `count` best visual ones, ascending.

    Args:
        visual: which tokens are visual, `[tokens]` bool.
        scores: of every token, `[tokens]`; only those of visual ones are read.
        count: visual tokens to keep.
    """
    mask = ~visual
    places = visual.nonzero()[:, 0]
    mask[places[scores[places].topk(count).indices]] = True
    return mask.nonzero()[:, 0]
