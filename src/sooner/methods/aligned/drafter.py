"""Drafts from fixed texts, aligned anew with what was said after every round."""

from __future__ import annotations

from ...decoding.interface import Drafter, Outcome
from ...decoding.tree import Tree
from ..context import Context
from .alignment import Alignment
from .prefix_tree import Limits, PrefixTree, grow
from .size import Sizing


class AlignedDrafter(Drafter):
    """Proposes, for each row, the tree of what its drafts say next (HSD, section 3.2).

    Args:
        context: the run.
        rows: each row's drafts, aligned with nothing yet.
        sizing: chooses how many nodes are verified.
        depth: most tokens on a path.
        width: most branches of a tree.
    """

    def __init__(
        self, context: Context, rows: list[Alignment], sizing: Sizing, depth: int, width: int
    ) -> None:
        self.context = context
        self.rows = rows
        self.sizing = sizing
        self.depth, self.width = depth, width
        self.pending = (0, 0)  # rows and nodes of the trees that are verified
        self.left = 0.0  # when they were handed over

    def keep_rows(self, rows: list[int]) -> None:
        self.rows = [self.rows[row] for row in rows]

    def finish(self, outcome: Outcome) -> Tree:
        stats = self.context.stats
        if not outcome.is_first:
            self.sizing.observe(*self.pending, stats.clock() - self.left)
        for row, new in zip(self.rows, outcome.new, strict=True):
            row.advance(new)
        tree = self._tree(outcome)
        self.pending = (tree.rows, tree.nodes)
        self.left = stats.clock()
        return tree

    def _tree(self, outcome: Outcome) -> Tree:
        grown = [
            self._grow(row, budget) for row, budget in zip(self.rows, outcome.budget, strict=True)
        ]
        size = self.sizing.choose([tree.chances for tree in grown])
        device = outcome.hidden.device
        if not size or not any(tree.tokens for tree in grown):
            return Tree.empty(len(grown), device)
        tokens = [tree.tokens[:size] for tree in grown]
        return Tree.from_lists(tokens, [tree.parents[:size] for tree in grown], str(device))

    def _grow(self, row: Alignment, budget: int) -> PrefixTree:
        """The tree of a row that may say `budget` more tokens, the last of them the target's."""
        depth = min(self.depth, budget - 1)
        sizing = self.sizing
        return grow(row, Limits(sizing.limit(), depth, self.width, sizing.floor))
