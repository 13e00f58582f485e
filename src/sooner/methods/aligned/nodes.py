"""How many nodes of the trees of continuations are verified: as many as measurably pay."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np

from ..controller import Candidates, Controller, RoundCost

NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Numbers of nodes that are weighed against each other."""
FIRST = 4
"""Nodes of a trial, and half of the most nodes of the first tree."""
WORTH_A_TRIAL = 1.5
"""Tokens that a tree has to promise, where all look slow, for another trial to be worth it."""
FLOOR = 0.01
"""Least chance of a token that is weighed at all."""


class NodeCount:
    """The number of nodes that a `Controller` finds to pay most, plain decoding included.

    The chance of each node is known before it is verified, so that every round decides for itself:
    drafts that are no good have small chances. A pause only ends what looked slow by mistake.

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
        """Returns nodes to grow for `choose`: twice the last choice, so that costs are met step by
        step."""
        return self.largest if self.controller is None else min(self.largest, 2 * self._last)

    def choose(self, chances: Sequence[Sequence[float]]) -> int:
        """Returns nodes to verify of each tree.

        Args:
            chances: of the nodes of each row's tree, falling.
        """
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
