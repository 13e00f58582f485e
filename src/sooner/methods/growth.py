"""Grows trees of likely tokens level by level, on the device, without reading it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..engine.tree import ROOT, Paths, Tree


@dataclass(frozen=True)
class Frontier:
    """The nodes of the newest level that are to be continued; all are `[rows, frontier]`.

    Attributes:
        nodes: index of each among all candidates; `ROOT` before the first.
        tokens: their ids.
        scores: log-confidence of the path down to each.
        parents: position of each node's parent in the frontier above.
    """

    nodes: Tensor
    tokens: Tensor
    scores: Tensor
    parents: Tensor


class Growth:
    """Holds candidates of a batch of trees, level by level (EAGLE-2, Li et al. 2024, section 4).

    The value of a node is the product of the confidences on its path. *Expansion*: the `top_k`
    nodes of highest value of a level are continued, each by its `top_k` most likely tokens.
    *Re-ranking*: of all candidates the best are kept. A value never exceeds the parent's, and ties
    go to the upper level, so ancestors of what is kept are kept.
    """

    def __init__(self, top_k: int, rows: int, device: torch.device) -> None:
        self.top_k = top_k
        none = torch.zeros(rows, 1, dtype=torch.long, device=device)
        # The last committed token, alone and certain.
        self.frontier = Frontier(none + ROOT, none, none.float(), none)
        self.counts: list[int] = []  # candidates of each level
        self._tokens: list[Tensor] = []
        self._parents: list[Tensor] = []
        self._scores: list[Tensor] = []

    @classmethod
    def of(cls, top_k: int, depth: int, tokens: Tensor, parents: Tensor, scores: Tensor) -> Growth:
        """Returns the candidates of `depth` whole levels, `[rows, candidates]`; it is complete."""
        made = cls(top_k, len(tokens), tokens.device)
        made.counts = [top_k] + [top_k * top_k] * (depth - 1)
        made._tokens, made._parents, made._scores = [tokens], [parents], [scores]
        return made

    @property
    def total(self) -> int:
        return sum(self.counts)

    # Of all candidates, upper levels first, `[rows, candidates]` each: logs of values, tokens, and
    # indices of parents or `ROOT`.

    @property
    def scores(self) -> Tensor:
        return torch.cat(self._scores, 1)

    @property
    def tokens(self) -> Tensor:
        return torch.cat(self._tokens, 1)

    @property
    def parents(self) -> Tensor:
        return torch.cat(self._parents, 1)

    def extend(self, values: Tensor, tokens: Tensor, subset: Tensor | None = None) -> None:
        """Add a level, and make its best nodes the frontier.

        Args:
            values: log-confidences of the continuations of each frontier node,
                `[rows, frontier, k]`; minus infinity for what can't be said.
            tokens: their ids.
            subset: those of the `frontier * k` that may be among the best, ascending; all by
                default.
        """
        rows, _, branching = tokens.shape
        scores = (self.frontier.scores[..., None] + values.clamp(max=0.0)).flatten(1)
        tokens = tokens.flatten(1)
        above = self.frontier.nodes[..., None].expand(-1, -1, branching).reshape(rows, -1)
        if subset is not None:
            scores, tokens, above = scores[:, subset], tokens[:, subset], above[:, subset]
        best, place = scores.topk(min(self.top_k, scores.shape[1]))
        source = place if subset is None else subset[place]
        self.frontier = Frontier(
            place + self.total, tokens.gather(1, place), best, source // branching
        )
        self.counts.append(scores.shape[1])
        self._tokens.append(tokens)
        self._parents.append(above)
        self._scores.append(scores)

    def frontier_paths(self) -> Paths:
        """Returns what each frontier node's continuations continue; a node of no chance stands for
        the row itself, since processors may have no answer behind it."""
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


class MarginalTrees:
    """Makes the trees of most probable prefixes under a product of marginals (DDTree).

    A prefix of `d` tokens has the probability `q_1(x_1) ... q_d(x_d)`, and is at least as probable
    as what continues it, so the best ones are closed under parents, which makes a tree. None of as
    many nodes has a higher expected number of accepted tokens while the marginals hold and are
    independent (Ringel and Romano 2026: a heap over rank vectors).

    With the prefixes of a level in order, the `i`-th continued by the `j`-th best token of the next
    place (both from 1) is beaten by `i * j - 1` others at least, so only pairs with `i * j <=
    nodes` can be among the best: some `nodes * ln(nodes)` a level.
    """

    def __init__(self) -> None:
        self._subsets: dict[tuple[int, int, int], Tensor] = {}  # which stay on the device

    def best(
        self, values: Tensor, tokens: Tensor, nodes: int, levels: list[int], is_open: bool
    ) -> Tree:
        """Returns trees of at most `nodes` prefixes.

        Args:
            values: log-probabilities of the best tokens of each place, descending, `[rows, places,
                k]`; minus infinity for what can't be said.
            tokens: their ids.
            levels, is_open: as `Growth.best` takes them.
        """
        growth = Growth(nodes, len(values), values.device)
        for place in range(values.shape[1]):
            width = growth.frontier.tokens.shape[1]
            level, ids = (part[:, place, None].expand(-1, width, -1) for part in (values, tokens))
            subset = self._subset(width, values.shape[2], nodes, values.device)
            growth.extend(level, ids, subset)
        return growth.best(nodes, levels, is_open)

    def _subset(self, prefixes: int, branching: int, nodes: int, device: torch.device) -> Tensor:
        """Returns which of `prefixes * branching` continuations may be among the best."""
        key = (prefixes, branching, nodes)
        if key not in self._subsets:
            pairs = [
                prefix * branching + rank
                for prefix in range(prefixes)
                for rank in range(min(branching, nodes // (prefix + 1)))
            ]
            self._subsets[key] = torch.tensor(pairs, device=device)
        return self._subsets[key]
