"""How large a tree to draft: a fixed one, or the one that measurably pays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..engine.interface import Outcome
from .controller import Candidates, Controller, RoundCost
from .draft_length import Acceptance, ChainAcceptance

WHOLE_ROUNDS, WHOLE_EVERY = 6, 64
"""Rounds with the largest tree: the first ones, and now and then, since a small tree tells nothing
about what a larger one would have had accepted."""
MEMORY = 0.95
"""Weight that what was accepted so far keeps from round to round."""
NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Numbers of nodes that are weighed against each other."""


@dataclass(frozen=True)
class Size:
    """Holds the size of a draft tree: its most nodes, and its levels."""

    nodes: int
    depth: int

    def __str__(self) -> str:
        return f"{self.nodes} nodes on {self.depth} levels"


NOTHING = Size(0, 0)
"""Plain decoding."""


class TreeSize:
    """Always the same tree; subclasses learn from what rounds cost and gave."""

    def __init__(self, largest: Size) -> None:
        self.largest = largest

    def begin(self, note: Callable[..., None]) -> None:
        """A run begins, whose notes go to `note`."""

    def choose(self, room: int, is_open: bool, rows: int = 1) -> Size:
        """Returns the tree of the next round over so many rows, of which one may still use `room`
        draft tokens at most; `is_open`: the head has read the prompt."""
        return self.largest

    def observe_prefill(self, seconds: float) -> None:
        """Records that the head took `seconds` for a prompt."""

    def observe_cost(self, done: RoundCost, tokens: float | None) -> None:
        """Records that a round that gave `tokens` a row took this long; on GPUs a round late."""

    def observe(self, size: Size, paths: Sequence[Sequence[int]]) -> None:
        """Records that a round verified trees of at most `size`, of which `paths` were accepted: of
        each row that may use all levels, the ranks by value of its nodes, from the root down."""

    def observe_call(self, tokens: float) -> None:
        """Records that a call ended after `tokens` tokens a row."""

    def plan(self, outcome: Outcome, is_open: bool) -> tuple[Size, list[int]]:
        """Returns the tree of the next round, and how many levels of it each row may use: the last
        token of a row is always the target's."""
        size = self.choose(max(outcome.budget) - 1, is_open, len(outcome.budget))
        levels = [max(min(size.depth, budget - 1), 0) for budget in outcome.budget]
        depth = max(levels)
        return replace(size, depth=depth) if depth else NOTHING, levels

    def observe_round(
        self, size: Size, levels: Sequence[int], done: RoundCost, outcome: Outcome
    ) -> None:
        """Hands what a round gave, and what it took as soon as that is known, to `observe` and
        `observe_cost`.

        Args:
            size: of the trees that the round verified, whose nodes are numbered by value.
            levels: that each row may use of them. A row near its limit tells nothing about what a
                whole tree would have given.
            done: the round, but for its seconds.
            outcome: what it accepted.
        """
        paths = [
            [entry - 1 for entry in path[1:]]
            for path, level in zip(outcome.path, levels, strict=True)
            if level == size.depth > 0
        ]
        tokens = 1 + sum(map(len, paths)) / len(paths) if paths else None
        outcome.round_time.then(
            lambda seconds: self.observe_cost(replace(done, seconds=seconds), tokens)
        )
        self.observe(size, paths)


class MeasuredSize(TreeSize):
    """The tree that a `Controller` finds to pay most, plain decoding included.

    The best `n` nodes of a large tree are the tree of `n` nodes, so a round with a large tree tells
    what each smaller one would have had accepted. A head's prefill is paid by the tokens of a call
    until the head has read the prompt. One instance lives as long as its method and serves call
    after call, since a call may be as short as eight tokens.

    Args:
        largest: upper limits.
        sizes: that are compared; by default trees of several numbers of nodes on all depths.
        forwards: of a draft, whatever its size; `None`: one a level.
    """

    def __init__(
        self, largest: Size, sizes: Sequence[Size] | None = None, forwards: int | None = None
    ) -> None:
        super().__init__(largest)
        if sizes is None:
            counts = sorted({size for size in NODES if size < largest.nodes} | {largest.nodes})
            sizes = [Size(n, d) for d in range(1, largest.depth + 1) for n in counts if n >= d]
        self.sizes, self.forwards = sizes, forwards
        self._nodes, self._depths = np.array([[size.nodes, size.depth] for size in sizes]).T
        self._accepted = np.zeros(len(sizes))  # tokens of a row and round
        self._is_known = np.zeros(len(sizes), dtype=bool)
        self.controller: Controller[Size] = Controller("nodes")
        self._first = ChainAcceptance(Acceptance())  # of the best first token, whatever the size
        self.drafted_rounds, self._counted = 0, 0
        self._prefill = self._call = 0.0  # seconds, and tokens: averages

    def begin(self, note: Callable[..., None]) -> None:
        self.controller.begin(note)

    def choose(self, room: int, is_open: bool, rows: int = 1) -> Size:
        if room < 1:
            return NOTHING
        controller = self.controller
        if self.drafted_rounds < WHOLE_ROUNDS:
            return self.largest if controller.times.plain_rounds else NOTHING
        fits = np.flatnonzero(self._depths <= room)
        if not len(fits):
            return NOTHING
        level = controller.times.draft(rows)
        reading = 0.0 if is_open else self._prefill / max(min(self._call or room, room), 1.0)

        def candidates() -> Candidates[Size]:
            tokens, forwards = 1 + self._accepted[fits], self.forwards or self._depths[fits]
            drafting = forwards * level + reading * tokens
            sizes, blocks = [self.sizes[int(place)] for place in fits], 1 + self._nodes[fits]
            trial, fall = len(fits) - 1, self._first.fall
            return Candidates(sizes, blocks, tokens, drafting, trial, True, fall)

        # The end of a call, where little is left to win, decides for itself alone.
        is_long = room >= self.largest.depth
        best = controller.choose(rows, candidates, forget=self._forget, may_pause=is_long)
        if best is None:
            return NOTHING
        return best if self.drafted_rounds % WHOLE_EVERY else self.largest

    def observe_prefill(self, seconds: float) -> None:
        self._prefill += (seconds - self._prefill) * (0.3 if self._prefill else 1.0)

    def observe_cost(self, done: RoundCost, tokens: float | None) -> None:
        self.controller.observe(done, tokens, is_counted=self.drafted_rounds >= WHOLE_ROUNDS)

    def observe(self, size: Size, paths: Sequence[Sequence[int]]) -> None:
        if not paths:
            return
        self.drafted_rounds += 1
        self._counted += 1
        self._first.observe([1] * len(paths), [int(path[:1] == [0]) for path in paths])
        seen = (self._nodes <= size.nodes) & (self._depths <= size.depth)
        memory = np.where(self._is_known, min(MEMORY, 1 - 1 / self._counted), 0.0)
        mean = np.mean([self._accepted_of(path) for path in paths], 0)
        mean = memory * self._accepted + (1 - memory) * mean
        self._accepted = np.where(seen, mean, self._accepted)
        self._is_known |= seen

    def _accepted_of(self, path: Sequence[int]) -> np.ndarray:
        """Returns nodes of an accepted path that trees of each size would have had, `[sizes]`."""
        highest = np.maximum.accumulate(np.array(path, dtype=int))
        within = highest < self._nodes[:, None]
        count: np.ndarray = (within & (np.arange(len(path)) < self._depths[:, None])).sum(1)
        return count

    def observe_call(self, tokens: float) -> None:
        self._call += (tokens - self._call) * (0.3 if self._call else 1.0)

    def _forget(self) -> None:
        """Let the next round count as much as all before: the text may have changed."""
        self._counted = 1
