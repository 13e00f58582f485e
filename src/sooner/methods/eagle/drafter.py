"""Drafts dynamic trees (EAGLE-2) with a head that reads the target's states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...engine.interface import Outcome, Prompt
from ...engine.tree import ROOT, Paths, Tree
from ...models.base import Packing
from ..context import Context
from ..sized_draft import ReadingDrafter
from ..tree_size import TreeSize
from .runner import HeadRunner, PromptStates


@dataclass(frozen=True)
class Frontier:
    """The nodes of the newest level that are to be continued.

    Attributes:
        nodes: index of each among all candidates, `[rows, frontier]`; `ROOT` before the first.
        tokens: `[rows, frontier]`.
        scores: log-confidence of the path down to each, `[rows, frontier]`.
        parents: place of each one's parent in the frontier above, `[rows, frontier]`.
    """

    nodes: Tensor
    tokens: Tensor
    scores: Tensor
    parents: Tensor

    @staticmethod
    def root(rows: int, device: torch.device) -> Frontier:
        """Returns the last committed token, alone and certain."""
        nothing = torch.zeros(rows, 1, dtype=torch.long, device=device)
        return Frontier(nothing + ROOT, nothing, nothing.float(), nothing)


class Growth:
    """Holds candidates of a batch of trees, level by level (EAGLE-2, Li et al. 2024, section 4).

    The value of a node is the product of the confidences on its path. *Expansion*: the `top_k`
    nodes of highest value of a level are continued, each by its `top_k` most likely tokens.
    *Re-ranking*: of all candidates the best are kept. A value never exceeds the parent's, and ties
    go to the upper level, so ancestors of what is kept are kept.

    Args:
        top_k: continuations of a node, and nodes continued on a level.
        rows: of the batch.
        device: of the candidates.
    """

    def __init__(self, top_k: int, rows: int, device: torch.device) -> None:
        self.top_k = top_k
        self.frontier = Frontier.root(rows, device)
        self.counts: list[int] = []  # candidates of each level
        self._tokens: list[Tensor] = []
        self._parents: list[Tensor] = []
        self._scores: list[Tensor] = []

    @classmethod
    def of(cls, top_k: int, depth: int, tokens: Tensor, parents: Tensor, scores: Tensor) -> Growth:
        """Returns the candidates of `depth` whole levels, `[rows, candidates]` each; it grows no
        more.
        """
        made = cls(top_k, len(tokens), tokens.device)
        made.counts = [top_k] + [top_k * top_k] * (depth - 1)
        made._tokens, made._parents, made._scores = [tokens], [parents], [scores]
        return made

    @property
    def total(self) -> int:
        return sum(self.counts)

    @property
    def scores(self) -> Tensor:
        """Log of the value of each candidate, `[rows, candidates]`."""
        return torch.cat(self._scores, 1)

    @property
    def tokens(self) -> Tensor:
        """Returns the tokens of all candidates, upper levels first, `[rows, candidates]`."""
        return torch.cat(self._tokens, 1)

    @property
    def parents(self) -> Tensor:
        """Returns index of each candidate's parent, or `ROOT`, `[rows, candidates]`."""
        return torch.cat(self._parents, 1)

    def extend(self, values: Tensor, tokens: Tensor) -> None:
        """Add a level, and make its best nodes the frontier.

        Args:
            values: log-confidences of the continuations of each frontier node,
                `[rows, frontier, k]`; minus infinity for what can't be said.
            tokens: their ids.
        """
        rows, width, branching = tokens.shape
        scores = (self.frontier.scores[..., None] + values.clamp(max=0.0)).flatten(1)
        tokens = tokens.flatten(1)
        above = self.frontier.nodes[..., None].expand(-1, -1, branching).reshape(rows, -1)
        best, place = scores.topk(min(self.top_k, width * branching))
        self.frontier = Frontier(
            place + self.total, tokens.gather(1, place), best, place // branching
        )
        self.counts.append(width * branching)
        self._tokens.append(tokens)
        self._parents.append(above)
        self._scores.append(scores)

    def frontier_paths(self) -> Paths:
        """What each frontier node's continuations continue.

        A node that can't be said stands for the row itself: processors may have no answer behind
        it.
        """
        sizes = [self.total] * len(self.tokens)
        reach = Tree.of(self.tokens, self.parents, sizes).ancestors()[:, 1:, 1:]
        above = reach.gather(1, self.frontier.nodes[..., None].expand(-1, -1, self.total))
        return Paths(self.tokens, above & (self.frontier.scores > -torch.inf)[..., None])

    def best(self, nodes: int, levels: list[int], is_open: bool) -> Tree:
        """Returns the trees of the `nodes` best candidates, the best first.

        Args:
            nodes: most nodes of a tree.
            levels: how many levels each row may use.
            is_open: some candidates may be of no chance at all, and are left out.
        """
        counts = [sum(self.counts[:level]) for level in levels]
        width, sizes = min(nodes, max(counts)), None
        scores = self.scores
        if min(counts) < self.total:
            line = torch.arange(self.total, device=scores.device)
            limits = torch.tensor(counts, device=scores.device)
            scores = scores.masked_fill(line >= limits[:, None], -torch.inf)
            sizes = limits.clamp(max=nodes)
        values, order = scores.sort(dim=1, descending=True, stable=True)
        values, order = values[:, :width], order[:, :width]
        if is_open:
            sizes = (values > -torch.inf).sum(1)
        if sizes is None:
            return self._tree(order, [width] * len(levels))
        tree = self._tree(order.masked_fill(values == -torch.inf, self.total), sizes)
        return tree.trimmed() if is_open else tree

    def _tree(self, order: Tensor, sizes: Tensor | list[int]) -> Tree:
        """Trees of the candidates `order [rows, nodes]`, best first; `total` stands for none."""
        line = torch.arange(order.shape[1], device=order.device).expand_as(order)
        places = torch.zeros(len(order), self.total + 1, dtype=torch.long, device=order.device)
        places.scatter_(1, order, line)
        index = order.clamp(max=self.total - 1)
        above = self.parents.gather(1, index)
        parents = torch.where(above < 0, ROOT, places.gather(1, above.clamp(min=0)))
        # Padding may have any parent that comes before it.
        parents = parents.masked_fill(order == self.total, ROOT)
        is_chain = self.top_k == 1
        if is_chain:  # padding included
            parents = line - 1
        return Tree.of(self.tokens.gather(1, index), parents, sizes, is_chain=is_chain)


class EagleDrafter(ReadingDrafter[HeadRunner, PromptStates]):
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
        super().__init__(context, sizing, PromptStates())
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
        if not self.head.needs_ids:
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
        if runner.graphs is None or not self.context.processing.is_plain:
            growth = self._grown(runner, outcome, runner.level, runner.logits, states)
        else:  # choices and all, for the host has nothing to say
            depth, is_drawn = self.size.depth, self.context.processing.do_sample
            parts = runner.launch_levels(
                ("tree", depth, self.top_k, None if is_drawn else self.head.temperature),
                (depth - 1) * self.top_k,
                partial(self._tree, runner, outcome),
                states,
            )
            growth = Growth.of(self.top_k, depth, *parts)
        return growth.best(self.size.nodes, self.levels, self._is_open)

    def _tree(self, runner: HeadRunner, outcome: Outcome, states: Tensor) -> tuple[Tensor, ...]:
        """Candidates of a tree: tokens, parents and scores, `[rows, candidates]` each."""
        growth = self._grown(runner, outcome, runner.forward_level, runner.forward_logits, states)
        return growth.tokens, growth.parents, growth.scores

    def _grown(
        self,
        runner: HeadRunner,
        outcome: Outcome,
        level: Callable[..., tuple[Tensor, Tensor]],
        logits: Callable[[Tensor], Tensor],
        states: Tensor,
    ) -> Growth:
        """All levels of a tree behind the estimates `[rows, 1, hidden]` of committed entries.

        Args:
            level, logits: how the runner forwards a level, and scores its estimates.
        """
        visible, written = runner.visible, 0
        growth = Growth(self.top_k, len(states), states.device)
        growth.extend(*self._continuations(logits(states), growth, outcome, runner.legal))
        for depth in range(self.size.depth - 1):
            front = growth.frontier
            above = front.parents[..., None]
            states = states.gather(1, above.expand(-1, -1, states.shape[2]))
            visible = visible.gather(1, above.expand(-1, -1, visible.shape[2]))
            states, visible = level(front.tokens, states, depth, visible, written)
            written += front.tokens.shape[1]
            growth.extend(*self._continuations(logits(states), growth, outcome, runner.legal))
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
        rows = outcome.rows

        drafted = growth.frontier_paths if growth.counts else None
        scores = self.context.processing.scores(logits, drafted, rows.prefix)
        if not self.context.processing.do_sample:
            # What counts is how likely a token is the mode, not how likely it is drawn.
            scores = scores / self.head.temperature
        mass = scores.logsumexp(-1, keepdim=True)
        if legal is None:
            best, tokens = scores.topk(self.top_k)
            return best - mass, tokens
        best, index = scores.index_select(-1, legal).topk(self.top_k)
        return best - mass, legal[index]
