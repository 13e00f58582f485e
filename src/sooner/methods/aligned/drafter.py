"""Drafts from fixed texts, aligned anew after every round, merged into one prefix tree."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count

import numpy as np

from ...engine.interface import Drafter, Outcome
from ...engine.tree import ROOT, Tree
from ...errors import UnsupportedError
from ..context import Context
from ..controller import Candidates, Controller, RoundCost
from ..prompt_lookup import allowed_nodes
from .alignment import Alignment, Cursor

NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Numbers of nodes that are weighed against each other."""
FIRST = 4
"""Nodes of a trial, and half of the most nodes of the first tree."""
WORTH_A_TRIAL = 1.5
"""Tokens that a tree has to promise, where all look slow, for another trial to be worth it."""
FLOOR = 0.01
"""Least chance of a token that is weighed at all."""


@dataclass(frozen=True)
class Limits:
    """Holds sizes and positions of one tree.

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
    tree, chances, arrivals = PrefixTree(), row.prior.chances, count()
    # (negative chance, order of arrival, parent, depth, token, continuations behind it)
    heap: list[tuple[float, int, int, int, int, list[Cursor]]] = []

    def add_children(parent: int, depth: int, chance: float, cursors: list[Cursor]) -> None:
        if depth >= limits.depth:
            return
        for token, (kind, rank, following) in row.branches(cursors).items():
            value = chance * chances[kind][min(rank, len(chances[kind]) - 1)]
            if value > limits.floor:
                heappush(heap, (-value, next(arrivals), parent, depth + 1, token, following))

    leaves = 0
    inner: set[int] = {ROOT}  # nodes with a child: a further child is one leaf more
    add_children(ROOT, 0, 1.0, row.cursors)
    while heap and len(tree.tokens) < limits.nodes:
        value, _, parent, depth, token, cursors = heappop(heap)
        is_leaf_more = parent in inner
        if is_leaf_more and leaves >= limits.width:
            continue
        leaves += is_leaf_more
        inner.add(parent)
        tree.tokens.append(token)
        tree.parents.append(parent)
        tree.chances.append(-value)
        add_children(len(tree.tokens) - 1, depth, -value, cursors)
    return tree


def cut(tree: PrefixTree, nodes: list[int]) -> PrefixTree:
    """Returns the tree of some of its nodes, which hang together."""
    if len(nodes) == len(tree.tokens):
        return tree
    places = {ROOT: ROOT, **{node: at for at, node in enumerate(nodes)}}
    return PrefixTree(
        [tree.tokens[node] for node in nodes],
        [places[tree.parents[node]] for node in nodes],
        [tree.chances[node] for node in nodes],
    )


class NodeCount:
    """The number of nodes that a `Controller` finds to pay most, plain decoding included.

    The chance of each node is known before it is verified, so that every round decides for itself.
    A pause only ends what looked slow by mistake.

    Args:
        largest: upper limit.
        controller: of the experience; `None` is always the same number, whatever it costs.
        needs_trials: plain rounds have no evidence of what would be accepted, as of rules that
            accept what the target would not have said.

    Attributes:
        floor: chance that a token must exceed to be worth verifying.
    """

    def __init__(
        self, largest: int, controller: Controller[int] | None = None, needs_trials: bool = False
    ) -> None:
        self.largest, self.controller, self.needs_trials = largest, controller, needs_trials
        self.sizes = [size for size in NODES if size < largest] + [largest]
        self.floor = 0.0 if controller is None else FLOOR
        self._last = FIRST

    def limit(self) -> int:
        """Returns nodes to grow: twice the last choice, so that costs are met step by step."""
        return self.largest if self.controller is None else min(self.largest, 2 * self._last)

    def choose(self, chances: Sequence[Sequence[float]]) -> int:
        """Returns nodes to verify of each tree, by the chances of its nodes, falling."""
        limit, rows = max(map(len, chances), default=0), len(chances)
        if self.controller is None or not limit:
            return self.largest if limit else 0
        sizes = self.sizes[: bisect_left(self.sizes, limit) + 1]
        within = np.minimum(sizes, limit)
        table = np.zeros((rows, 1 + limit))
        for row, each in enumerate(chances):
            table[row, 1 : 1 + len(each)] = each
        tokens = 1 + table.cumsum(1).mean(0)[within]
        trial = max(bisect_right(sizes, FIRST) - 1, 0)
        self.controller.reconsider()
        size = self.controller.choose(
            rows,
            lambda: Candidates(sizes, 1 + within, tokens, trial=trial),
            may_pause=self.needs_trials or tokens.max() >= WORTH_A_TRIAL,
        )
        if size is None:
            return 0
        self._last = max(size, FIRST)
        return size

    def observe(self, rows: int, nodes: int, seconds: float) -> None:
        """Records that a round over `rows` trees of up to `nodes` nodes took `seconds`."""
        if self.controller is not None:
            done = RoundCost(rows, 1 + nodes, seconds=seconds)
            self.controller.observe(done, is_counted=False)


class AlignedDrafter(Drafter):
    """Proposes, for each row, the tree of what its drafts say next (HSD, section 3.2).

    Args:
        context: the run.
        rows: each row's drafts, aligned with nothing yet; or what makes them behind the prefill,
            whose time counts as the drafts' own prefill.
        sizing: chooses how many nodes are verified.
        depth: most tokens on a path.
        width: most branches of a tree.
        is_relaxed: the rule weighs scores, of which a greedy row among others that draw has none
            but the best one's.
    """

    def __init__(
        self,
        context: Context,
        rows: list[Alignment] | Callable[[], list[Alignment]],
        sizing: NodeCount,
        depth: int,
        width: int,
        is_relaxed: bool = False,
    ) -> None:
        self.is_relaxed = is_relaxed
        self.context = context
        self.rows = [] if callable(rows) else rows
        self._make = rows if callable(rows) else None
        self.sizing = sizing
        self.depth, self.width = depth, width
        self.pending = (0, 0)  # rows and nodes of the trees that are verified

    def select_rows(self, rows: list[int]) -> None:
        if self._make is None:  # else they are made of the rows that go on behind the prefill
            self.rows = [self.rows[row] for row in rows]

    def merge(self, other: AlignedDrafter) -> None:
        draws = {drafter.context.processing.do_sample for drafter in (self, other)}
        if self.is_relaxed and len(draws) > 1:
            raise UnsupportedError(
                "HSD: under an acceptance_threshold below 1 rows that draw and rows that do not "
                "can't decode together; they wait for a batch of their own"
            )
        self.rows += other.rows

    def begin(self, outcome: Outcome) -> Iterator[None]:
        if self._make is not None:
            with self.context.stats.phase("draft_prefill"):
                made, self._make = self._make(), None
            self.rows = [made[row] for row in outcome.rows.active]
        return iter(())

    def propose(self, outcome: Outcome) -> Tree:
        if not outcome.is_first:
            outcome.round_time.then(partial(self.sizing.observe, *self.pending))
        for row, new in zip(self.rows, outcome.new, strict=True):
            row.advance(new)
        tree = self._tree(outcome)
        self.pending = (tree.rows, tree.nodes)
        return tree

    def _tree(self, outcome: Outcome) -> Tree:
        sizing, processing, grown = self.sizing, self.context.processing, list[PrefixTree]()
        for number, (row, budget) in enumerate(zip(self.rows, outcome.budget, strict=True)):
            depth = min(self.depth, budget - 1)  # the last token is the target's
            tree = grow(row, Limits(sizing.limit(), depth, self.width, sizing.floor))
            nodes = allowed_nodes(processing, number, tree.tokens, tree.parents)
            grown.append(cut(tree, nodes))
        size = sizing.choose([tree.chances for tree in grown])
        device = outcome.hidden.device
        if not size or not any(tree.tokens for tree in grown):
            return Tree.empty(len(grown), device)
        tokens = [tree.tokens[:size] for tree in grown]
        return Tree.from_lists(tokens, [tree.parents[:size] for tree in grown], str(device))
