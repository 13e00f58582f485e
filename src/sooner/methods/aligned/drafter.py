"""Drafts from fixed texts, aligned anew with what was said after every round."""

from __future__ import annotations

from collections.abc import Callable

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
        rows: each row's drafts, aligned with nothing yet; or what makes them, asked behind the
            prefill. The time of that is not the decoding's: it counts as the drafts' own prefill.
        sizing: chooses how many nodes are verified.
        depth: most tokens on a path.
        width: most branches of a tree.
    """

    def __init__(
        self,
        context: Context,
        rows: list[Alignment] | Callable[[], list[Alignment]],
        sizing: Sizing,
        depth: int,
        width: int,
    ) -> None:
        self.context = context
        self.rows = [] if callable(rows) else rows
        self._make = rows if callable(rows) else None
        self._kept: list[int] | None = None  # of the rows that are still to be made
        self.sizing = sizing
        self.depth, self.width = depth, width
        self.pending = (0, 0)  # rows and nodes of the trees that are verified
        self.left = 0.0  # when they were handed over

    def keep_rows(self, rows: list[int]) -> None:
        if self._make is not None:
            self._kept = rows  # once at most: they are made right behind the prefill
        else:
            self.rows = [self.rows[row] for row in rows]

    def finish(self, outcome: Outcome) -> Tree:
        stats = self.context.stats
        if self._make is not None:
            self._wait_for(self._make)
        if not outcome.is_first:
            self.sizing.observe(*self.pending, stats.clock() - self.left)
        for row, new in zip(self.rows, outcome.new, strict=True):
            row.advance(new)
        tree = self._tree(outcome)
        self.pending = (tree.rows, tree.nodes)
        self.left = stats.clock()
        return tree

    def _wait_for(self, make: Callable[[], list[Alignment]]) -> None:
        stats = self.context.stats
        began = stats.clock()
        self.rows, self._make = make(), None
        if self._kept is not None:
            self.keep_rows(self._kept)
        took = stats.clock() - began
        stats.seconds["draft_prefill"] += took
        stats.seconds["draft"] -= took  # the phase that this is called in

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
