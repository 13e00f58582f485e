"""All continuations merged into one tree, the most promising tokens first."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush

from ...decoding.tree import ROOT
from .alignment import Alignment, Cursor


@dataclass(frozen=True)
class Limits:
    """Of one tree.

    Attributes:
        nodes: most tokens.
        depth: most tokens on one path.
        width: most leaves.
        floor: chance that a token must exceed to be worth verifying.
    """

    nodes: int
    depth: int
    width: int
    floor: float = 0.0


@dataclass(frozen=True)
class PrefixTree:
    """A tree of which the first `n` nodes are the best tree of `n` nodes.

    Attributes:
        tokens: of each node.
        parents: index of each node's parent, or `ROOT`.
        chances: that the target says each node's path, falling.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)


def grow(row: Alignment, limits: Limits) -> PrefixTree:
    """Merge the continuations of a row (eq. 6), the likeliest token first.

    The chance of a node is that of its parent times how often such a continuation went on right.
    It never exceeds the parent's, so parents come first.
    """
    tree, growth = PrefixTree(), _Growth(row, limits)
    leaves = 0
    inner: set[int] = set()  # nodes with a child: a further child is one leaf more
    growth.open(ROOT, 0, 1.0, row.cursors)
    while growth.heap and len(tree.tokens) < limits.nodes:
        value, _, parent, depth, token, cursors = heappop(growth.heap)
        is_leaf_more = parent == ROOT or parent in inner
        if is_leaf_more and leaves >= limits.width:
            continue
        leaves += is_leaf_more
        inner.add(parent)
        tree.tokens.append(token)
        tree.parents.append(parent)
        tree.chances.append(-value)
        growth.open(len(tree.tokens) - 1, depth, -value, cursors)
    return tree


class _Growth:
    """The tokens that may be added next, the likeliest on top."""

    def __init__(self, row: Alignment, limits: Limits) -> None:
        self.row, self.limits = row, limits
        self.chances = row.trust.chances
        # (negative chance, order of arrival, parent, depth, token, continuations behind it)
        self.heap: list[tuple[float, int, int, int, int, list[Cursor]]] = []
        self.count = 0

    def open(self, parent: int, depth: int, chance: float, cursors: list[Cursor]) -> None:
        """Let the children of a node be added, which is at `depth` and has `cursors` behind it."""
        if depth >= self.limits.depth:
            return
        for token, (kind, rank, behind) in self.row.branches(cursors).items():
            ranks = self.chances[kind]
            value = chance * (ranks[rank] if rank < len(ranks) else ranks[-1])
            if value > self.limits.floor:
                self.count += 1
                heappush(self.heap, (-value, self.count, parent, depth + 1, token, behind))
