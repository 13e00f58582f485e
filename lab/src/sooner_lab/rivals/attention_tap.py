"""What the text of a prompt attends to, recorded during the target's prefill.

Fused attention never shows its weights, and a whole matrix of them would not fit for long videos.
The tap takes the queries and keys that the fused kernel gets, rotated and normalised by the model
itself, and computes the few rows of attention that are needed: O(queries x tokens) a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sooner.engine.interface import Outcome
from sooner.errors import UnsupportedError
from sooner.methods.context import Context, prompt_lengths, visual_tokens
from sooner.methods.speculative import ChainDrafter
from sooner.models.hooks import AttentionCall, AttentionHooks

QUERIES = 64
"""Most text tokens at the end of a prompt whose attention is recorded."""

OnScores = Callable[[int, Tensor], None]
"""Takes a layer and the attention that its queries pay to each token, `[rows, heads, width]`."""


class AttentionTap(AttentionHooks):
    """Hooks on the attention of some of the target's layers, for one prefill.

    The queries are the last text tokens behind the last visual one of each row.

    Args:
        context: the run, whose statistics count the time that scores take.
        layers: the target's layers whose attention is recorded.
        on_scores: called after each of `layers`.
        queries: most query tokens of a row.

    Attributes:
        visual: which tokens of the packed prompt are visual, `[rows, width]` bool.
        slots: positions of the query tokens, `[rows, queries]`, padded.
        valid: which of them are real, `[rows, queries]` bool.
    """

    def __init__(
        self, context: Context, layers: Sequence[int], on_scores: OnScores, queries: int = QUERIES
    ) -> None:
        super().__init__()
        self.stats, self.on_scores = context.stats, on_scores
        self.visual = visual = visual_tokens(context)
        device = visual.device
        ends = torch.tensor(prompt_lengths(context), device=device)
        behind_pixels = (visual * torch.arange(1, visual.shape[1] + 1, device=device)).amax(1)
        # The query of a prompt that ends with pixels is its last token.
        first = torch.maximum(torch.minimum(behind_pixels, ends - 1), ends - queries)
        slots = first[:, None] + torch.arange(int((ends - first).max()), device=device)
        self.valid = slots < ends[:, None]
        self.slots = slots.where(self.valid, 0)
        for number in layers:
            attention = context.target.decoder.layers[number].self_attn
            self.around(attention, partial(self._listen, number))

    def _listen(
        self, number: int, module: nn.Module, call: AttentionCall | None, output: Any
    ) -> None:
        with self.stats.ranking():
            scores = self._scores(module, call, output)
        self.on_scores(number, scores)

    def _scores(self, module: nn.Module, call: AttentionCall | None, output: Any) -> Tensor:
        matrix = output[1] if isinstance(output, tuple) else None
        if call is not None:
            self._check(module, call.keys.shape[2])
            weights = self._weights(call.queries, call.keys, call.scale)
        elif matrix is not None:  # eager attention has the whole matrix at hand
            self._check(module, matrix.shape[-1])
            weights = self._rows(matrix).float()
        else:
            raise UnsupportedError(
                f"{type(module).__name__} called no dense attention that can be read; leave the "
                "prefill context, or load the model with attn_implementation='sdpa'"
            )
        valid = self.valid.to(weights.device)[:, None, :, None]
        return weights.masked_fill(~valid, 0.0).sum(2)

    def _check(self, module: nn.Module, keys: int) -> None:
        if keys != (width := self.visual.shape[1]):
            raise UnsupportedError(
                f"ranking by attention needs all {width} prompt tokens, but "
                f"{type(module).__name__} sees {keys} of them; leave the prefill context, and "
                "prefill_chunk_size unset"
            )

    def _rows(self, states: Tensor) -> Tensor:
        """Returns states `[rows, heads, width, ...]` of the query tokens alone."""
        rows = torch.arange(len(states), device=states.device)[:, None]
        return states[rows, :, self.slots.to(states.device)].transpose(1, 2)

    def _weights(self, queries: Tensor, keys: Tensor, scale: float) -> Tensor:
        """Returns causal attention weights of the query tokens, `[rows, heads, queries, width]`,
        fp32.

        Args:
            queries: of the whole prompt, `[rows, heads, width, head_dim]`.
            keys: `[rows, heads or kv_heads, width, head_dim]`.
        """
        grouped = self._rows(queries).unflatten(1, (keys.shape[1], -1)).float()
        weights = grouped @ keys.float()[:, :, None].transpose(3, 4) * scale
        slots = self.slots.to(keys.device)
        later = torch.arange(keys.shape[2], device=keys.device) > slots[..., None]
        return weights.masked_fill(later[:, None, None], -torch.inf).softmax(-1).flatten(1, 2)


class TapDrafter(ChainDrafter):
    """A drafter that records the target's attention until the prefill has ended.

    Attributes:
        tap: its hooks; `None` before the prefill.
    """

    tap: AttentionTap | None = None

    def begin(self, outcome: Outcome) -> Iterator[None]:
        self._remove_tap()
        return super().begin(outcome)

    def close(self) -> None:
        self._remove_tap()
        super().close()

    def _remove_tap(self) -> None:
        if self.tap is not None:
            self.tap.remove()
