"""What the text of a prompt attends to, heard during the target's prefill.

Fused attention never shows its weights, and a whole matrix of them would not fit for long videos.
The tap takes the queries and keys that the fused kernel is handed, rotated and normalised by the
model itself, and computes the few rows that are asked for: O(queries x tokens) a layer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..engine.cache import SlotCache
from ..engine.interface import cache_of
from ..errors import UnsupportedError
from ..models.hooks import AttentionCall, AttentionHooks, prompt_attention
from .context import Context, prompt_lengths, visual_tokens

KERNELS = (torch.nn.functional.scaled_dot_product_attention, prompt_attention)
"""Dense attention, and that of a sparse prefill."""

OnScores = Callable[[int, Tensor], None]
"""Told `(layer, attention that each token got from the asking ones)`: `[rows, heads, width]`."""


@dataclass(frozen=True)
class QueryTokens:
    """The text tokens whose attention is heard.

    Attributes:
        slots: their places in the packed prompt, `[rows, queries]`, padded.
        valid: which of them are real, `[rows, queries]` bool.
        visual: which tokens of the packed prompt are visual, `[rows, width]` bool.
    """

    slots: Tensor
    valid: Tensor
    visual: Tensor

    @property
    def width(self) -> int:
        return self.visual.shape[1]


def asking_tokens(visual: Tensor, lengths: list[int], limit: int) -> QueryTokens:
    """Returns the last text tokens behind the last visual one of each row, `limit` at the most.

    Args:
        visual: which tokens of the packed prompt are visual, `[rows, width]` bool.
        lengths: real tokens of each row.
    """
    device = visual.device
    ends = torch.tensor(lengths, device=device)
    behind_pixels = (visual * torch.arange(1, visual.shape[1] + 1, device=device)).amax(1)
    # A prompt that ends with pixels asks with its last token.
    first = torch.maximum(torch.minimum(behind_pixels, ends - 1), ends - limit)
    slots = first[:, None] + torch.arange(int((ends - first).max()), device=device)
    valid = slots < ends[:, None]
    return QueryTokens(slots.where(valid, 0), valid, visual)


def listen(
    context: Context, layers: Sequence[int], queries: int, on_scores: OnScores
) -> AttentionTap:
    """Hear, during the target's prefill, what the words behind the pixels attend to.

    Args:
        context: the run.
        layers: which of the target's layers to hear.
        queries: most words that ask.
        on_scores: see `AttentionTap`.
    """
    asking = asking_tokens(visual_tokens(context), prompt_lengths(context), queries)
    return AttentionTap(context.target.decoder, layers, asking, on_scores)


def listen_twice(
    context: Context, depth: int, queries: int, on_states: Callable[[Tensor, Tensor], None]
) -> AttentionTap:
    """A `PrefillTap` that hands on attention instead of states: of the first layer and layer L.

    Args:
        depth: L.
        on_states: told `(first, last)` in the middle of the prefill, each `[rows, width]`: what
            each token got, averaged over heads; see the attention criteria of `pruning`.
    """
    records: list[Tensor] = []

    def keep(layer: int, scores: Tensor) -> None:
        records.append(scores.mean(1))
        if layer == depth - 1:
            on_states(records[0], records[-1])

    return listen(context, sorted({0, depth - 1}), queries, keep)


class AttentionTap(AttentionHooks):
    """Hooks on the attention of some layers, for one prefill.

    Args:
        decoder: the target's decoder, whose `layers` have a `self_attn`.
        layers: which of them to hear.
        asking: the tokens that ask.
        on_scores: called after each of `layers`.

    Attributes:
        seconds: time spent computing scores.
    """

    functions = KERNELS

    def __init__(
        self, decoder: Any, layers: Sequence[int], asking: QueryTokens, on_scores: OnScores
    ) -> None:
        super().__init__()
        self.asking = asking
        self.on_scores = on_scores
        self.seconds = 0.0
        for number, attention in [(number, decoder.layers[number].self_attn) for number in layers]:
            self.before(attention, self._check_cache)
            self.around(attention, partial(self._listen, number))

    def _check_cache(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        cache = cache_of(kwargs)
        if isinstance(cache, SlotCache):
            cache.require_whole("ranking visual tokens by attention")

    def _listen(
        self, number: int, module: nn.Module, call: AttentionCall | None, output: Any
    ) -> None:
        start = time.perf_counter()
        self.on_scores(number, self._scores(module, call, output))
        self.seconds += time.perf_counter() - start

    def _scores(self, module: nn.Module, call: AttentionCall | None, output: Any) -> Tensor:
        matrix = output[1] if isinstance(output, tuple) else None
        if call is not None:
            self._check(module, call.keys.shape[2])
            weights = asking_weights(call.queries, call.keys, call.scale, self.asking)
        elif matrix is not None:  # eager attention has the whole matrix at hand
            self._check(module, matrix.shape[-1])
            rows = torch.arange(matrix.shape[0], device=matrix.device)[:, None]
            weights = matrix[rows, :, self.asking.slots.to(matrix.device)].transpose(1, 2).float()
        else:
            raise UnsupportedError(
                f"{type(module).__name__} called no attention that can be heard; load the model "
                "with attn_implementation='sdpa'"
            )
        valid = self.asking.valid.to(weights.device)[:, None, :, None]
        return weights.masked_fill(~valid, 0.0).sum(2)

    def _check(self, module: nn.Module, keys: int) -> None:
        if keys != self.asking.width:
            raise UnsupportedError(
                f"ranking by attention needs all {self.asking.width} prompt tokens, but "
                f"{type(module).__name__} sees {keys} of them; leave the prefill context"
            )


def asking_weights(queries: Tensor, keys: Tensor, scale: float, asking: QueryTokens) -> Tensor:
    """Returns causal attention weights of the asking tokens, `[rows, heads, queries, width]`, fp32.

    Args:
        queries: of the whole prompt, `[rows, heads, width, head_dim]`.
        keys: `[rows, heads or kv_heads, width, head_dim]`.
    """
    slots = asking.slots.to(queries.device)
    rows = torch.arange(queries.shape[0], device=queries.device)[:, None]
    selected = queries[rows, :, slots].transpose(1, 2)  # [rows, heads, queries, head_dim]
    groups = queries.shape[1] // keys.shape[1]
    selected = selected.unflatten(
        1, (-1, groups)
    ).float()  # [rows, kv_heads, groups, queries, head_dim]
    weights = selected @ keys.float()[:, :, None].transpose(3, 4) * scale
    later = torch.arange(keys.shape[2], device=slots.device) > slots[..., None]
    weights = weights.masked_fill(later[:, None, None], -torch.inf)
    return weights.softmax(-1).flatten(1, 2)
