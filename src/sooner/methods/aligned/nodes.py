"""How many nodes of the trees of continuations are verified: as many as measurably pay."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np

from ..controller import Candidates, RoundCost
from .prior import Experience

NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Numbers of nodes that are weighed against each other."""
FIRST = 4
"""Nodes of a trial, and half of the most nodes of the first tree."""
WORTH_A_TRIAL = 1.5
"""Tokens that a tree has to promise, where all look slow, for another trial to be worth it."""
FLOOR = 0.01
"""Least chance of a token that is weighed at all."""


class NodeCount:
    """Takes always the same number of nodes, whatever it costs; subclasses learn."""

    floor = 0.0

    def __init__(self, largest: int) -> None:
        self.largest = largest

    def limit(self) -> int:
        """Returns nodes to grow for `choose`."""
        return self.largest

    def choose(self, chances: Sequence[Sequence[float]]) -> int:
        """Returns nodes to verify of each tree.

        Args:
            chances: of the nodes of each row's tree, falling.
        """
        return self.largest

    def observe(self, rows: int, nodes: int, seconds: float) -> None:
        """Records that a round over `rows` trees of up to `nodes` nodes took `seconds`."""


class MeasuredNodes(NodeCount):
    """The number that the experience's `Controller` finds to pay most, plain decoding included.

    The chance of each node is known before it is verified, so that every round decides for itself:
    drafts that are no good have small chances. A pause only ends what looked slow by mistake.

    Args:
        largest: upper limit.
        experience: what is known of costs, and where more of it goes.
        needs_trials: plain rounds have no evidence of what would be accepted, as of rules that
            accept what the target would not have said.
    """

    floor = FLOOR

    def __init__(self, largest: int, experience: Experience, needs_trials: bool = False) -> None:
        super().__init__(largest)
        self.controller = experience.controller
        self.needs_trials = needs_trials
        self.sizes = [size for size in NODES if size < largest] + [largest]
        self._last = FIRST

    def limit(self) -> int:
        """Returns twice the last choice, so that costs are met step by step."""
        return min(self.largest, 2 * self._last)

    def choose(self, chances: Sequence[Sequence[float]]) -> int:
        limit, rows = max(map(len, chances), default=0), len(chances)
        if not limit:
            return 0
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
        done = RoundCost(rows, 1 + nodes, seconds=seconds)
        self.controller.observe(done, is_counted=False)
