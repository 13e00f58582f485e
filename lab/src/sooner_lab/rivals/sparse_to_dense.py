"""Sparse-to-Dense: the target drafts for itself with a cache of the visual tokens that matter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from sooner.checks import option
from sooner.engine.interface import Drafter, Outcome
from sooner.engine.loop import Rule
from sooner.engine.rows import Rows
from sooner.engine.runner import ModelRunner
from sooner.engine.tree import Tree
from sooner.errors import UnsupportedError
from sooner.methods.base import Method
from sooner.methods.context import Context
from sooner.methods.draft_length import AdaptiveDraftLength, DraftLength
from sooner.methods.pruning import keep_count
from sooner.methods.speculative import reject

from .attention_tap import AttentionTap, TapDrafter


@dataclass(frozen=True)
class SparseToDense(Method):
    """Self-speculation with a sparse cache (StD, Zhang et al. 2025); needs no draft model.

    After the prefill a second, short cache is gathered from the target's: all text tokens and, in
    each layer and key-value head, the visual tokens to which the question's tokens paid most
    attention. The target drafts on the short cache and verifies on the full one. What it committed
    is copied over, so drafting never feeds a token twice.

    Args:
        num_draft_tokens: draft tokens a round (the baseline's 9), or `"auto"` for the number that
            measurably pays, which may be none.
        max_draft_tokens: upper limit for `"auto"`.
        prune: share of the visual tokens that the short cache does without.

    Raises:
        SoonerError: a value out of range.
    """

    num_draft_tokens: int | Literal["auto"] = option("auto", 1)
    max_draft_tokens: int = option(16, 1)
    prune: float = option(0.9, 0, 1)
    name: ClassVar[str] = "sparse-to-dense"
    needs_whole_target: ClassVar[bool] = True
    needs_whole_prompt: ClassVar[bool] = True

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        longest, note = self.largest_block() - 1, context.stats.note
        is_auto = self.num_draft_tokens == "auto"
        sizing = AdaptiveDraftLength(longest, note) if is_auto else DraftLength(longest)
        return SparseDrafter(context, self, sizing), reject


class SparseDrafter(TapDrafter):
    """Drafts with the target's own weights on a short copy of its cache.

    Attributes:
        dense: the target's runner.
        scores: attention that each token got in each layer, `[rows, heads, width]`.
    """

    def __init__(self, context: Context, method: SparseToDense, sizing: DraftLength) -> None:
        super().__init__(context.target, {}, context, sizing)
        self.method = method
        self.dense = context.runner
        self.scores: list[Tensor] = []

    def on_verify_start(self, pending: Tree, rows: Rows) -> None:
        if self.tap is None:
            self.tap = AttentionTap(self.context, range(self.adapter.layers), self._record)

    def _record(self, layer: int, scores: Tensor) -> None:
        self.scores.append(scores)

    def open_runner(self, room: int) -> tuple[ModelRunner, Iterator[Any]]:
        assert self.tap is not None
        # Rows that ended with the prefill are gone from the target's cache already.
        active = self.context.rows.active
        visual = self.tap.visual
        visual = visual[torch.tensor(active, device=visual.device)]
        counts, slots = self._slots(visual, active)
        runner = ModelRunner(self.adapter, max(counts) + room)
        self._launch_as_graphs(runner, len(counts))
        pairs = zip(self.dense.cache.slot_layers, runner.cache.slot_layers, strict=True)
        for (dense, sparse), chosen in zip(pairs, slots, strict=True):
            if dense.dropped:
                raise UnsupportedError("a prefill context left out prompt tokens; leave it")
            index = [chosen[..., None].expand(-1, -1, -1, each.shape[3]) for each in dense.stores]
            sparse.update(*map(Tensor.gather, dense.stores, (2, 2), index))
        runner.resume(counts, self.dense.next_position)
        self.scores = []
        return runner, iter(())

    def _slots(self, visual: Tensor, active: list[int]) -> tuple[list[int], list[Tensor]]:
        """Returns how many slots each active row keeps, and which, `[rows, kv_heads, most]` for
        each layer; `visual` is `[rows, width]` bool."""
        lengths = self.dense.lengths
        counts = [
            length - tokens + keep_count(tokens, self.method.prune)
            for length, tokens in zip(lengths, visual.sum(1).tolist(), strict=True)
        ]
        slots = []
        for layer, scores in zip(self.dense.cache.slot_layers, self.scores, strict=True):
            mine = scores[torch.tensor(active, device=scores.device)]
            heads = layer.stores[0].shape[1]
            grouped = mine.unflatten(1, (heads, -1)).sum(2)  # [rows, kv_heads, width]
            slots.append(best_slots(grouped, visual.to(scores.device), lengths, counts))
        return counts, slots

    def _keep(self, outcome: Outcome) -> Tensor | None:
        """Take over the keys and values that the target's last forward computed."""
        if outcome.is_first:
            return None
        assert self.runner is not None
        counts, prompts = torch.tensor(list(map(len, outcome.path))), self.prompt_lengths
        line = torch.arange(int(counts.max()))
        source = (torch.tensor(self.dense.lengths) - counts)[:, None] + line
        fed = torch.tensor([len(outcome.rows.output(row)) - 1 for row in range(len(counts))])
        # Of a row that has just joined all is there; what is copied lies behind, where it is free.
        begin = torch.tensor(prompts) + (fed - counts).clamp(min=0)
        target = begin[:, None] + line
        # What a shorter row copies too much lies behind its length, in both caches.
        pairs = zip(self.dense.cache.slot_layers, self.runner.cache.slot_layers, strict=True)
        rows = torch.arange(len(counts))[:, None]
        for dense, sparse in pairs:
            for read, write in zip(dense.stores, sparse.stores, strict=True):
                write[rows, :, target] = read[rows, :, source]
        self.runner.rewind((torch.tensor(prompts) + fed).tolist())
        return None


def best_slots(scores: Tensor, visual: Tensor, lengths: list[int], counts: list[int]) -> Tensor:
    """Returns slots of text tokens and the best visual ones, ascending, `[rows, kv_heads, most]`.

    Args:
        scores: `[rows, kv_heads, width]`, and `visual`: `[rows, width]` bool.
        lengths: real tokens of each row.
        counts: tokens that each row keeps; what lies behind them is any slot.
    """
    width = scores.shape[2]
    line = torch.arange(width, device=scores.device)
    outside = line >= torch.tensor(lengths, device=scores.device)[:, None]  # [rows, width]
    ranked = scores.masked_fill(~visual[:, None], torch.inf).masked_fill(outside[:, None], -1.0)
    slots = ranked.topk(max(counts), dim=2).indices
    spare = line[: max(counts)] >= torch.tensor(counts, device=scores.device)[:, None]
    # The order of slots means nothing to attention; this one makes a copy of all equal the cache.
    return slots.masked_fill(spare[:, None], width - 1).sort(2).values
