"""Token trees: what a drafter proposes and one target forward verifies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import pad

ROOT = -1
"""Parent of a node that continues the last committed token directly."""


@dataclass(frozen=True)
class Tree:
    """A ragged batch that holds one draft tree for each row.

    The last committed token of a row is the root and is not stored. A node's parent always has a
    smaller index than the node, siblings are distinct tokens, and nodes at or behind `sizes[row]`
    are padding. A chain is a tree in which each node has one child; no draft is the empty tree.

    Attributes:
        tokens: draft token ids, `[rows, nodes]`.
        parents: index of each node's parent, or `ROOT`, `[rows, nodes]`.
        sizes: number of real nodes of each row, `[rows]`, on the device of `tokens`.
        probs: `[rows, 1 + nodes, vocab]`, the processed distribution from which the children of
            the root (index 0) and of node `i` (index `1 + i`) were drawn. `None` for candidates
            that were not drawn at all (prompt lookup, argmax chains, top-k trees).
        is_chain: every row is a chain, which lets verification skip the tree bookkeeping. Whoever
            drafts says so; it is never read from the device.
        host_sizes: `sizes` once more, where the host knows them without asking the device.
    """

    tokens: Tensor
    parents: Tensor
    sizes: Tensor
    probs: Tensor | None = None
    is_chain: bool = False
    host_sizes: tuple[int, ...] | None = None
    # Found once. No `cached_property`, whose lock (Python 3.11) can't be compiled.
    _ancestors: list[Tensor] = field(default_factory=list, init=False, repr=False, compare=False)

    @staticmethod
    def empty(rows: int, device: torch.device | str = "cpu") -> Tree:
        """Returns no draft: the round that verifies it is a plain autoregressive step."""
        none = torch.empty(rows, 0, dtype=torch.long, device=device)
        sizes = torch.zeros(rows, dtype=torch.long, device=device)
        return Tree(none, none, sizes, is_chain=True, host_sizes=(0,) * rows)

    @staticmethod
    def chain(tokens: Tensor, sizes: Tensor | Sequence[int], probs: Tensor | None = None) -> Tree:
        """Returns chains of `sizes[row]` tokens; `tokens [rows, nodes]` is padded on the right.

        Behind the last node nothing was drawn: `probs` need not have an entry for it.
        """
        rows, nodes = tokens.shape
        if probs is not None and probs.shape[1] == nodes:
            probs = torch.cat([probs, torch.zeros_like(probs[:, :1])], 1)
        parents = torch.arange(-1, nodes - 1, device=tokens.device).expand(rows, nodes)
        return Tree.of(tokens, parents, sizes, probs, is_chain=True)

    @staticmethod
    def of(
        tokens: Tensor,
        parents: Tensor,
        sizes: Tensor | Sequence[int],
        probs: Tensor | None = None,
        is_chain: bool = False,
    ) -> Tree:
        """Returns a tree whose sizes are on its device, or are sent there from the host."""
        if isinstance(sizes, Tensor):
            return Tree(tokens, parents, sizes, probs, is_chain)
        device = tokens.device
        if len(set(sizes)) == 1:  # nothing to send
            sent = torch.full((len(sizes),), sizes[0], dtype=torch.long, device=device)
        else:
            sent = torch.tensor(sizes, dtype=torch.long, device=device)
        return Tree(tokens, parents, sent, probs, is_chain, tuple(sizes))

    @staticmethod
    def from_lists(tokens: list[list[int]], parents: list[list[int]], device: str = "cpu") -> Tree:
        """Build trees from one token list and one parent list a row."""
        sizes = tuple(len(row) for row in tokens)
        nodes = max(sizes, default=0)
        chains = all(row == list(range(-1, len(row) - 1)) for row in parents)
        lines = [
            [len(row), *row, *[0] * (nodes - len(row)), *above, *[ROOT] * (nodes - len(row))]
            for row, above in zip(tokens, parents, strict=True)
        ]
        packed = torch.tensor(lines, dtype=torch.long, device=device).view(
            len(sizes), 1 + 2 * nodes
        )
        count, drafted, hung = packed.split([1, nodes, nodes], dim=1)  # one transfer for all
        return Tree(drafted, hung, count[:, 0], is_chain=chains, host_sizes=sizes)

    @property
    def rows(self) -> int:
        return self.tokens.shape[0]

    @property
    def nodes(self) -> int:
        return self.tokens.shape[1]

    def valid(self) -> Tensor:
        """Returns which nodes are real, `[rows, nodes]` bool."""
        return torch.arange(self.nodes, device=self.tokens.device) < self.sizes[:, None]

    def ancestors(self) -> Tensor:
        """Returns what the block *root + nodes* reaches: `[rows, 1 + nodes, 1 + nodes]` bool.

        Entry `[r, i, j]` says that block entry `j` lies on the path from the root to entry `i`,
        both ends included. Entry 0 is the root; node `i` is entry `1 + i`. Don't write to it.
        """
        if not self._ancestors:
            self._ancestors.append(self._reach())
        return self._ancestors[0]

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
        """Returns the distance of each block entry from the root, `[rows, 1 + nodes]`."""
        if self.is_chain:
            line = torch.arange(1 + self.nodes, device=self.tokens.device)
            return line.expand(self.rows, -1)
        return self.ancestors().sum(-1) - 1

    def levels(self) -> Tensor:
        """Returns deepest level of each row's tree, `[rows]`: the most that a round can accept."""
        inside = pad(self.valid(), (1, 0), value=True)  # [rows, 1 + nodes]; padding has no depth
        return self.depths().masked_fill(~inside, 0).amax(1)

    def trimmed(self) -> Tree:
        """On CPUs, where reading costs nothing, without what is padding in every row."""
        if self.tokens.device.type != "cpu":
            return self
        sizes = tuple(self.sizes.tolist())
        nodes = max(sizes)
        probs = None if self.probs is None else self.probs[:, : 1 + nodes]
        return Tree(
            self.tokens[:, :nodes], self.parents[:, :nodes], self.sizes, probs, self.is_chain, sizes
        )

    def select_rows(self, rows: Tensor) -> Tree:
        """Returns the trees of the rows with the indices `rows`, `[kept]`."""
        return Tree(
            self.tokens[rows],
            self.parents[rows],
            self.sizes[rows],
            None if self.probs is None else self.probs[rows],
            self.is_chain,
        )


@dataclass(frozen=True)
class Paths:
    """The tokens that were drafted above each entry whose scores are asked for.

    Attributes:
        tokens: of a draft, parents before children, `[rows, nodes]`.
        above: which of them an entry continues, `[rows or 1, entries, nodes]` bool.
        parents: entry in front of each node, `[rows, nodes]`, where it is one of those asked for.
    """

    tokens: Tensor
    above: Tensor
    parents: Tensor | None = None

    @staticmethod
    def of(tree: Tree) -> Paths:
        """Returns the tokens of a block: the last committed token, then the nodes of `tree`."""
        line = torch.arange(1 + tree.nodes, device=tree.tokens.device)
        above = line[1:] <= line[:, None] if tree.is_chain else tree.ancestors()[..., 1:]
        return Paths(tree.tokens, tree.valid()[:, None] & above, tree.parents + 1)

    def lost(self, scores: Tensor) -> Tensor:
        """Returns entries behind a token that can't be said by `scores [rows, entries, vocab]`:
        `[rows, entries]` bool.
        """
        if self.parents is None:
            return torch.zeros_like(scores[..., 0], dtype=torch.bool)
        here = torch.arange(len(scores), device=scores.device)[:, None]
        never = scores[here, self.parents, self.tokens] == -torch.inf  # [rows, nodes]
        return (self.above & never[:, None]).any(-1)
