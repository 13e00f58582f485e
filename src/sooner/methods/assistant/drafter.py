"""Drafts chains with an assistant, which reads the target's cache and keeps nothing itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ...engine.attention.block import Block
from ...engine.attention.context import block_attention
from ...engine.cache import SlotCache
from ...engine.interface import Outcome
from ...engine.tree import Tree
from ...errors import UnsupportedError
from ..chain_draft import draw_next, match_vocabulary
from ..context import Context
from ..sized_draft import SizedDrafter
from ..tree_size import TreeSize
from .model import SLIDING


class AssistantDrafter(SizedDrafter):
    """Drafts a chain behind the last committed token, step by step.

    What it drafts from is the target's: its cache, which holds every committed token but the last,
    and the state that the last one was said from. So rows come and go without a word, and a prompt
    costs the drafter nothing.

    Args:
        model: the assistant, where the target is.
        context: the run.
        sizing: chooses the length of each draft.
    """

    def __init__(self, model: Any, sizing: TreeSize, context: Context) -> None:
        super().__init__(context, sizing)
        self.model = model
        self.sources: dict[str, int] = model.sources(context.target)

    def begin(self, outcome: Outcome) -> Iterator[None]:
        self.levels = [0] * len(outcome.rows.active)
        return iter(())

    def merge(self, other: AssistantDrafter) -> None:
        self.levels += other.levels

    def draft(self, outcome: Outcome) -> Tree:
        context, model = self.context, self.model
        target, processing, committed = context.target, context.processing, outcome.committed
        token, hidden = committed.last(1).to(target.device), outcome.hidden  # [rows, 1]
        last = (committed.entries - 1).to(hidden.device)  # a chain's path is its entries
        states = hidden.gather(1, last[:, None, None].expand(-1, 1, hidden.shape[2]))
        positions = context.runner.next_position
        if positions.ndim > 1:  # all axes say the same of what is no pixel
            positions = positions[0]
        rotations = model.rotations(positions.to(model.device))
        chain: list[Tensor] = []
        step_probs: list[Tensor] = []
        for _ in range(self.size.depth):
            states, logits = model(target.embed_tokens(token), states, rotations, self._attend)
            logits = match_vocabulary(logits.to(target.device), target.vocab_size)
            p, token = draw_next(logits, chain, outcome, processing)
            chain.append(token)
            step_probs.append(p)
            states = states.to(target.device)
        probs = None
        if processing.do_sample:  # nothing is drawn behind the last one
            probs = torch.cat([*step_probs, torch.zeros_like(step_probs[0])], 1)
        return Tree.chain(torch.cat(chain, 1), self.levels, probs)

    def _attend(self, kind: str, queries: Tensor) -> Tensor:
        """Returns what queries `[rows, heads, 1, dim]` find in the target's keys and values of a
        kind of layer.

        Raises:
            UnsupportedError: a prefill context took tokens out of them.
        """
        cache: SlotCache = self.context.runner.cache
        layer = cache.slot_layers[self.sources[kind]]
        if layer.dropped:
            raise UnsupportedError(
                f"the assistant reads the keys of all prompt tokens, but a prefill context left "
                f"{layer.dropped} out of layer {self.sources[kind]}; leave the context"
            )
        keys, values = layer.keys, layer.values
        assert keys is not None
        assert values is not None
        # A block's entry sees the committed slots and its own, which is the last committed one.
        block = Block(cache.lengths_on(keys.device) - 1, page_table=cache.page_table)
        window = self.model.config.sliding_window + 1 if kind == SLIDING else None
        output = block_attention(
            queries.to(keys.device), keys, values, block, scaling=1.0, window=window
        )
        return output.to(queries.device)
