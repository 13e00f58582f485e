"""The most probable trees of independent marginals (DDTree), on the device, without reading it."""

from __future__ import annotations

import torch
from torch import Tensor

from ...engine.tree import ROOT, Tree


class RankPairs:
    """Which tokens behind which prefixes of a level may be among the best; kept on the device."""

    def __init__(self) -> None:
        self._cache: dict[tuple[int, int, int], Tensor] = {}

    def of(self, prefixes: int, branching: int, nodes: int, device: torch.device) -> Tensor:
        """Returns prefixes, and ranks of the tokens behind them, `[2, pairs]`."""
        key = (prefixes, branching, nodes)
        if key not in self._cache:
            pairs = [
                (parent, rank)
                for parent in range(prefixes)
                for rank in range(min(branching, nodes // (parent + 1)))
            ]
            columns = [list(column) for column in zip(*pairs, strict=True)]
            self._cache[key] = torch.tensor(columns, device=device)
        return self._cache[key]


class MarginalTree:
    """Holds the `nodes` most probable prefixes under a product of marginals, of each row.

    A prefix of `d` tokens has the probability `q_1(x_1) ... q_d(x_d)`. A prefix is at least as
    probable as what continues it, so the best ones are closed under parents, which makes a tree;
    none of as many nodes has a higher expected number of accepted tokens while the marginals hold
    and are independent (DDTree, Ringel and Romano 2026: a heap over rank vectors).

    Found level by level, which needs no heap and no read of the device. With the prefixes of a
    level in order, the `i`-th continued by the `j`-th best token of the next place (both from 1) is
    beaten by `i * j - 1` others at least, so only pairs with `i * j <= nodes` can be among the
    best: some `nodes * ln(nodes)` a level.

    Args:
        values: log-probabilities of the best tokens of each place, descending, `[rows, places, k]`;
            minus infinity for what can't be said.
        tokens: their ids.
        nodes: of a tree.
        pairs: kept by who makes many trees.
    """

    def __init__(
        self, values: Tensor, tokens: Tensor, nodes: int, pairs: RankPairs | None = None
    ) -> None:
        pairs = RankPairs() if pairs is None else pairs
        self.nodes = nodes
        rows, places, self.branching = values.shape
        device = values.device
        scores = torch.zeros(rows, 1, device=device)  # of the level's prefixes, best first
        above = torch.full((rows, 1), ROOT, device=device)  # their index among all candidates
        self.counts: list[int] = []  # candidates of each level
        levels: list[tuple[Tensor, Tensor, Tensor]] = []
        for place in range(places):
            parent, rank = pairs.of(scores.shape[1], self.branching, nodes, device)
            level = scores[:, parent] + values[:, place][:, rank]  # [rows, pairs]
            levels.append((level, tokens[:, place][:, rank], above[:, parent]))
            scores, best = level.topk(min(nodes, level.shape[1]))
            above = best + sum(self.counts)
            self.counts.append(level.shape[1])
        self.scores, self.tokens, self.parents = (
            torch.cat(parts, 1) for parts in zip(*levels, strict=True)
        )

    def best(self, levels: list[int], is_open: bool) -> Tree:
        """Returns the trees, nodes by descending probability, upper levels first among equals.

        Args:
            levels: how many each row may use.
            is_open: some candidates may be of no chance at all, and are left out.
        """
        scores, total = self.scores, self.scores.shape[1]
        counts = [sum(self.counts[:level]) for level in levels]
        width, sizes = min(self.nodes, max(counts)), [min(self.nodes, count) for count in counts]
        if min(counts) < total:
            line = torch.arange(total, device=scores.device)
            limits = torch.tensor(counts, device=scores.device)
            scores = scores.masked_fill(line >= limits[:, None], -torch.inf)
        values, order = scores.sort(dim=1, descending=True, stable=True)
        values, order = values[:, :width], order[:, :width]
        line = torch.arange(width, device=order.device).expand_as(order)
        places = torch.zeros_like(self.parents).scatter_(1, order, line)
        above = self.parents.gather(1, order)
        parents = torch.where(above < 0, ROOT, places.gather(1, above.clamp(min=0)))
        tokens, is_chain = self.tokens.gather(1, order), self.branching == 1
        real = values > -torch.inf
        # Padding may have any parent that comes before it; a chain includes it.
        parents = line - 1 if is_chain else parents.masked_fill(~real, ROOT)
        if not is_open:
            return Tree.of(tokens, parents, sizes, is_chain=is_chain)
        return Tree.of(tokens, parents, real.sum(1), is_chain=is_chain).trimmed()
