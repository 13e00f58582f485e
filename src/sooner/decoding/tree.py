"""Token trees: what a drafter proposes and one target forward verifies."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

ROOT = -1
"""Parent of a node that continues the last committed token directly."""


@dataclass(frozen=True)
class Tree:
    """A ragged batch of draft trees, one for each row.

    The last committed token of a row is the root and is not stored. A node's parent always has a
    smaller index than the node, siblings are distinct tokens, and nodes at or behind `sizes[row]`
    are padding. A chain is a tree in which each node has one child; no draft is the empty tree.

    Attributes:
        tokens: draft token ids, `[rows, nodes]`.
        parents: index of each node's parent, or `ROOT`, `[rows, nodes]`.
        sizes: number of real nodes of each row, on the host, so that reading it never waits.
        probs: `[rows, 1 + nodes, vocab]`, the processed distribution from which the children of
            the root (index 0) and of node `i` (index `1 + i`) were drawn. `None` for candidates
            that were not drawn at all (prompt lookup, argmax chains, top-k trees).
        is_chain: every row is a chain, which lets verification skip the tree bookkeeping.
    """

    tokens: Tensor
    parents: Tensor
    sizes: list[int]
    probs: Tensor | None = None
    is_chain: bool = False

    @staticmethod
    def empty(rows: int, device: torch.device | str = "cpu") -> Tree:
        """No draft: the round that verifies it is a plain autoregressive step."""
        none = torch.empty(rows, 0, dtype=torch.long, device=device)
        return Tree(none, none, [0] * rows, is_chain=True)

    @staticmethod
    def chain(tokens: Tensor, sizes: list[int], probs: Tensor | None = None) -> Tree:
        """Chains of `sizes[row]` tokens; `tokens` is `[rows, nodes]`, padded on the right."""
        rows, nodes = tokens.shape
        parents = torch.arange(-1, nodes - 1, device=tokens.device).expand(rows, nodes)
        return Tree(tokens, parents, sizes, probs, is_chain=True)

    @staticmethod
    def from_lists(tokens: list[list[int]], parents: list[list[int]], device: str = "cpu") -> Tree:
        """Build trees from one token list and one parent list a row."""
        sizes = [len(row) for row in tokens]
        nodes = max(sizes, default=0)
        padded = [row + [0] * (nodes - len(row)) for row in tokens]
        above = [row + [ROOT] * (nodes - len(row)) for row in parents]
        chains = all(row == list(range(-1, len(row) - 1)) for row in parents)
        shape = (len(tokens), nodes)
        return Tree(
            torch.tensor(padded, dtype=torch.long, device=device).view(shape),
            torch.tensor(above, dtype=torch.long, device=device).view(shape),
            sizes,
            is_chain=chains,
        )

    @property
    def rows(self) -> int:
        return self.tokens.shape[0]

    @property
    def nodes(self) -> int:
        return self.tokens.shape[1]

    def valid(self) -> Tensor:
        """Which nodes are real, `[rows, nodes]` bool."""
        sizes = torch.tensor(self.sizes, device=self.tokens.device)
        return torch.arange(self.nodes, device=self.tokens.device)[None] < sizes[:, None]

    def ancestors(self) -> Tensor:
        """Reachability of the block *root + nodes*: `[rows, 1 + nodes, 1 + nodes]` bool.

        Entry `[r, i, j]` says that block entry `j` lies on the path from the root to entry `i`,
        both ends included. Entry 0 is the root; node `i` is entry `1 + i`. Found once, so don't
        write to it.
        """
        return self._reach

    @cached_property
    def _reach(self) -> Tensor:
        size = 1 + self.nodes
        step = torch.eye(size, device=self.tokens.device).repeat(self.rows, 1, 1)
        above = (self.parents + 1)[..., None]  # [rows, nodes, 1], as block entries
        step[:, 1:].scatter_(2, above, 1.0)
        # Each squaring doubles how many generations a row of the matrix reaches back.
        for _ in range(math.ceil(math.log2(size)) if size > 1 else 0):
            step = (step @ step).clamp_(max=1.0)
        return step > 0

    def depths(self) -> Tensor:
        """Distance of each block entry from the root, `[rows, 1 + nodes]`."""
        if self.is_chain:
            line = torch.arange(1 + self.nodes, device=self.tokens.device)
            return line.expand(self.rows, -1)
        return self.ancestors().sum(-1) - 1

    def levels(self) -> Tensor:
        """Deepest level of each row's tree, `[rows]`: the most that a round can accept of it."""
        inside = pad(self.valid(), (1, 0), value=True)  # [rows, 1 + nodes]; padding has no depth
        return self.depths().masked_fill(~inside, 0).amax(1)

    def keep_rows(self, rows: list[int]) -> Tree:
        """The trees of some rows only."""
        index = torch.tensor(rows, device=self.tokens.device)
        return replace(
            self,
            tokens=self.tokens[index],
            parents=self.parents[index],
            sizes=[self.sizes[row] for row in rows],
            probs=None if self.probs is None else self.probs[index],
        )
