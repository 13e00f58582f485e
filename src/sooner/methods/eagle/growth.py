"""The dynamic draft tree of EAGLE-2: grown where the head is confident, then pruned to the best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...decoding.tree import ROOT, Tree


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
        """The last committed token, alone and certain."""
        nothing = torch.zeros(rows, 1, dtype=torch.long, device=device)
        return Frontier(nothing + ROOT, nothing, nothing.float(), nothing)


class Growth:
    """Candidates of a batch of trees, level by level (EAGLE-2, Li et al. 2024, section 4).

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

    @property
    def total(self) -> int:
        return sum(self.counts)

    @property
    def tokens(self) -> Tensor:
        """Of all candidates, upper levels first, `[rows, candidates]`."""
        return torch.cat(self._tokens, 1)

    @property
    def parents(self) -> Tensor:
        """Index of each candidate's parent, or `ROOT`, `[rows, candidates]`."""
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

    def best(self, nodes: int, levels: list[int], is_open: bool) -> tuple[Tree, Tensor]:
        """The trees of the `nodes` best candidates.

        Args:
            nodes: most nodes of a tree.
            levels: how many levels each row may use.
            is_open: some candidates may be of no chance at all, and are left out.

        Returns:
            The trees, and the rank of each node in its tree by value, `[rows, nodes]`.
        """
        counts = [sum(self.counts[:level]) for level in levels]
        sizes = [min(nodes, count) for count in counts]
        scores = torch.cat(self._scores, 1)  # [rows, candidates]
        if min(counts) < self.total:
            line = torch.arange(self.total, device=scores.device)
            limits = torch.tensor(counts, device=scores.device)[:, None]
            scores = scores.masked_fill(line >= limits, -torch.inf)
        values, order = scores.sort(dim=1, descending=True, stable=True)
        values, order = values[:, : max(sizes)], order[:, : max(sizes)]
        if is_open:
            sizes = (values > -torch.inf).sum(1).tolist()
            values, order = values[:, : max(sizes)], order[:, : max(sizes)]
        return self._tree(order.masked_fill(values == -torch.inf, self.total), sizes)

    def _tree(self, order: Tensor, sizes: list[int]) -> tuple[Tree, Tensor]:
        """Trees of the candidates `order [rows, nodes]`, best first; `total` stands for none."""
        kept, ranks = order.sort(1)  # parents first again
        line = torch.arange(kept.shape[1], device=kept.device).expand_as(kept)
        places = torch.zeros(len(sizes), self.total + 1, dtype=torch.long, device=kept.device)
        places.scatter_(1, kept, line)
        index = kept.clamp(max=self.total - 1)
        above = self.parents.gather(1, index)
        parents = torch.where(above < 0, ROOT, places.gather(1, above.clamp(min=0)))
        # Padding may have any parent that comes before it.
        parents = parents.masked_fill(kept == self.total, ROOT)
        is_chain = self.top_k == 1
        if is_chain:  # padding included
            parents = line - 1
        return Tree(self.tokens.gather(1, index), parents, sizes, is_chain=is_chain), ranks


Prefixes = Callable[[], list[list[list[int]]]]


def frontier_prefixes(growth: Growth, said: list[list[int]]) -> list[list[list[int]]]:
    """Token ids that each frontier node's continuation continues, `[row][node]`.

    A node that can't be said stands for the row itself: processors may have no answer behind it.

    Args:
        growth: the trees so far.
        said: prefix of each row, the last committed token included.
    """
    if not growth.counts:
        return [[prefix] for prefix in said]
    tokens, parents = growth.tokens.tolist(), growth.parents.tolist()
    nodes, scores = growth.frontier.nodes.tolist(), growth.frontier.scores.tolist()
    return [
        [
            prefix + (_path(node, tokens[row], parents[row]) if value > -torch.inf else [])
            for node, value in zip(nodes[row], scores[row], strict=True)
        ]
        for row, prefix in enumerate(said)
    ]


def _path(node: int, tokens: list[int], parents: list[int]) -> list[int]:
    path: list[int] = []
    while node != ROOT:
        path.append(tokens[node])
        node = parents[node]
    return path[::-1]
