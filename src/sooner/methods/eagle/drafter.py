"""Drafts dynamic trees (EAGLE-2) with a head that reads the target's states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ...engine.interface import Outcome, Prompt
from ...engine.tree import Tree
from ...models.base import Packing
from ..context import Context
from ..growth import Growth
from ..sized_draft import PromptStates, ReadingDrafter
from ..tree_size import TreeSize
from .runner import HeadRunner


class EagleDrafter(ReadingDrafter[HeadRunner]):
    """Grows a tree after each of the target's forwards.

    Args:
        head: the draft head.
        context: the run.
        sizing: chooses the size of each tree.
        top_k: continuations of a node, and nodes continued on a level.
        legal: token ids that may be drafted, ascending; `None` for all.
    """

    def __init__(
        self,
        head: Any,
        context: Context,
        sizing: TreeSize,
        top_k: int,
        legal: Sequence[int] | None = None,
    ) -> None:
        super().__init__(context, sizing)
        self.head = head
        vocab = head.vocab_size or context.target.vocab_size  # that can be drafted at all
        self.top_k = min(top_k, vocab if legal is None else min(vocab, len(legal)))
        self.legal = None if legal is None else tuple(legal)

    def on_prefill(self, prompt: Prompt, start: int, states: Tensor) -> None:
        if self.prompt is not None:
            embeds = None if start else self._head_embeds(prompt)
            self.prompt.add(prompt, start, self.head.read(states), embeds)

    def _head_embeds(self, prompt: Prompt) -> Tensor | None:
        """The prompt's embeddings from the head's own table, if it has one."""
        if self.head.embed_tokens is None:
            return None
        inputs = self.context.inputs
        ids = Packing.of(inputs)(inputs["input_ids"]).repeat_interleave(self.context.copies, 0)
        result: Tensor = self.head.embed(prompt.embeds, ids, prompt.visual)
        return result

    def make_runner(self, prompt: PromptStates) -> HeadRunner:
        context = self.context
        limit, largest = context.stopping.limit or 0, self.sizing.largest
        block = (self.top_k + 1) * (largest.depth + 1)  # committed at once, or of one tree
        slots = prompt.embeds.shape[1] + limit + block
        return HeadRunner(self.head, context.target, slots, block, self.legal)

    def read_prompt(self, runner: HeadRunner, prompt: PromptStates) -> None:
        positions = None
        if self.head.wants_positions:
            runner.count_from(prompt.next_position, prompt.lengths)
            positions = prompt.positions[..., :-1]
        runner.remember(*prompt.entries(), positions)

    def draft(self, outcome: Outcome) -> Tree:
        runner = self.ready_runner()
        fed = self.backlog.take()
        tokens = fed.tokens.to(self.context.target.device)
        embeds = self.head.embed(self.context.target.embed_tokens(tokens), tokens)
        read = self.head.read(fed.states)
        states = runner.feed(embeds, read, fed.sizes, fed.counts)  # [rows, 1, hidden]
        if self.context.processing.is_plain:  # choices and all, for the host has nothing to say
            depth, is_drawn = self.size.depth, self.context.processing.do_sample

            def tree(states: Tensor) -> tuple[Tensor, ...]:
                growth = self._grown(runner, outcome, states, is_part=True)
                return growth.tokens, growth.parents, growth.scores

            temperature = None if is_drawn else self.head.config.temperature
            key, entries = ("tree", depth, self.top_k, temperature), (depth - 1) * self.top_k
            parts = runner.launch(key, tree, states, entries=entries)
            growth = Growth.of(self.top_k, depth, *parts)
        else:
            growth = self._grown(runner, outcome, states)
        return growth.best(self.size.nodes, self.levels, self._is_open)

    def _grown(
        self, runner: HeadRunner, outcome: Outcome, states: Tensor, is_part: bool = False
    ) -> Growth:
        """All levels of a tree behind the estimates `[rows, 1, hidden]` of committed entries.

        Args:
            is_part: it is within a part that is launched.
        """
        visible, written = runner.visible, 0
        growth = Growth(self.top_k, len(states), states.device)
        logits = runner.logits(states, is_part)
        growth.extend(*self._continuations(logits, growth, outcome, runner.legal))
        for depth in range(self.size.depth - 1):
            front = growth.frontier
            above = front.parents[..., None]
            states = states.gather(1, above.expand(-1, -1, states.shape[2]))
            visible = visible.gather(1, above.expand(-1, -1, visible.shape[2]))
            states, visible = runner.level(front.tokens, states, depth, visible, written, is_part)
            written += front.tokens.shape[1]
            logits = runner.logits(states, is_part)
            growth.extend(*self._continuations(logits, growth, outcome, runner.legal))
        return growth

    @property
    def _is_open(self) -> bool:
        """Whether some tokens may have no chance at all."""
        is_reduced = self.legal is not None and self.head.vocab_size is not None
        return is_reduced or self.context.processing.changes_scores

    def _continuations(
        self, logits: Tensor, growth: Growth, outcome: Outcome, legal: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Log-confidence and id of the best tokens behind each frontier node, of `legal` ones.

        Both are `[rows, frontier, top_k]`.
        """
        drafted = growth.frontier_paths if growth.counts else None
        scores = self.context.processing.scores(logits, drafted, outcome.rows.prefix)
        if not self.context.processing.do_sample:
            # What counts is how likely a token is the mode, not how likely it is drawn.
            scores = scores / self.head.config.temperature
        mass = scores.logsumexp(-1, keepdim=True)
        if legal is None:
            best, tokens = scores.topk(self.top_k)
            return best - mass, tokens
        best, index = scores.index_select(-1, legal).topk(self.top_k)
        return best - mass, legal[index]
