"""How large a tree to draft: a fixed one, or the one that measurably pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...engine.interface import Outcome
from .costs import Costs, Recent, RoundCost, SizeTimes, rounded
from .pauses import Candidate, Pauses

WHOLE_ROUNDS, WHOLE_EVERY = 6, 64
"""Rounds with the largest tree: the first ones, and now and then, since a small tree tells nothing
about what a larger one would have had accepted."""

MEMORY = 0.95
"""Weight that what was accepted so far keeps from round to round."""

NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Numbers of nodes that are weighed against each other."""


@dataclass(frozen=True)
class Size:
    """The size of a draft tree: its most nodes, and its levels; `None` is plain decoding."""

    nodes: int
    depth: int

    def holds(self, path: Sequence[int]) -> int:
        """Returns nodes of an accepted path (ranks, from the root down) that such a tree would have
        had.
        """
        ranks = path[: self.depth]
        return next((at for at, rank in enumerate(ranks) if rank >= self.nodes), len(ranks))


NOTHING = Size(0, 0)


class TreeSize:
    """Always the same tree; subclasses learn from what rounds cost and gave."""

    listens = False

    def __init__(self, largest: Size) -> None:
        self.largest = largest

    def choose(self, room: int, is_open: bool, rows: int = 1) -> Size:
        """Returns the tree of the next round.

        Args:
            room: most draft tokens that a row may still say.
            is_open: the head has read the prompt.
            rows: of the batch.
        """
        return self.largest

    def observe_prefill(self, seconds: float) -> None:
        """The head took `seconds` for a prompt."""

    def observe_cost(self, done: RoundCost, tokens: float | None) -> None:
        """A round that gave `tokens` a row, if that is known, took this long; on GPUs told a round
        late."""

    def observe(self, size: Size, paths: Sequence[Sequence[int]]) -> None:
        """A round verified trees of at most `size`.

        Args:
            paths: of each row, the ranks by value of the nodes that were accepted, from the root
                down; rows that may not use all levels are left out.
        """

    def observe_call(self, tokens: float) -> None:
        """A call ended after `tokens` tokens a row."""


class MeasuredSize(TreeSize):
    """The tree with the highest expected tokens a second, plain decoding included.

    Trees of one round are nested: the best `n` nodes of a large tree are the tree of `n` nodes.
    So a round with a large tree tells what each smaller one would have had accepted, which is
    counted. With `A(n, d)` that mean for `n` nodes on `d` levels, `t` the time of a level, `V(b)`
    that of verifying a block of `b`, `P` that of the head's prefill and `m` tokens a call,

        (t d + V(1 + n)) / (1 + A(n, d)) + P / m

    seconds a token are compared with `V(1)`; `P` counts until it is paid. One instance lives as
    long as its method and serves call after call, since a call may say eight tokens only.

    Args:
        largest: upper limits.
        sizes: that are compared; by default trees of several numbers of nodes on all depths.
    """

    listens = True

    def __init__(self, largest: Size, sizes: Sequence[Size] | None = None) -> None:
        super().__init__(largest)
        if sizes is None:
            counts = sorted({size for size in NODES if size < largest.nodes} | {largest.nodes})
            sizes = [Size(n, d) for d in range(1, largest.depth + 1) for n in counts if n >= d]
        self.sizes = sizes
        self.costs, self.drafted_rounds, self._counted = Costs(), 0, 0
        self.pauses: Pauses[Size] = Pauses(self.costs, "nodes", forget=self._forget)
        self._levels, self._prefills, self._calls = SizeTimes(), Recent(), Recent()
        self._accepted: dict[Size, float] = {}

    def choose(self, room: int, is_open: bool, rows: int = 1) -> Size:
        if room < 1:
            return NOTHING
        fitting = [size for size in self.sizes if size.depth <= room]

        def best() -> Candidate[Size]:
            gains = self._gains(fitting, room, is_open, rows)
            size = max(fitting, key=gains.__getitem__)
            text = f"{size.nodes} nodes on {size.depth} levels"
            return Candidate(size, gains[size], size.nodes, text)

        def trial() -> tuple[Size, float]:
            size = self.largest
            drafting = self._drafting(size, self._levels.seconds(rounded(rows)))
            return size, drafting + self.costs.seconds(rows, 1 + size.nodes)

        if self.drafted_rounds < WHOLE_ROUNDS or not self.costs.plain_rounds:
            return NOTHING if self.costs.is_plain_due(rows) else self.largest
        # The end of a call, where little is left to win, decides for itself alone.
        is_long = room >= self.largest.depth
        size = self.pauses.choose(rows, best, trial, may_pause=is_long)
        if size is None:
            return NOTHING
        return size if self.drafted_rounds % WHOLE_EVERY else self.largest

    def gain(self, size: Size, room: int = 1 << 30, is_open: bool = True, rows: int = 1) -> float:
        """Returns speed with a tree of `size` as a multiple of plain decoding's."""
        return self._gains([size], room, is_open, rows)[size]

    def _gains(
        self, sizes: Sequence[Size], room: int, is_open: bool, rows: int
    ) -> dict[Size, float]:
        counts = {size.nodes for size in sizes}
        verify = {nodes: self.costs.seconds(rows, 1 + nodes) for nodes in counts}
        level, plain = self._levels.seconds(rounded(rows)), self.costs.seconds(rows, 1)
        reading = 0.0
        if not is_open:
            tokens = min(self._calls.typical or room, room)
            reading = (self._prefills.typical or 0.0) / max(tokens, 1.0)
        gains = {}
        for size in sizes:
            seconds = self._drafting(size, level) + verify[size.nodes]
            gains[size] = plain / (seconds / (1.0 + self._accepted.get(size, 0.0)) + reading)
        return gains

    def _drafting(self, size: Size, level: float) -> float:
        """Seconds that drafting a tree takes, whose every forward takes `level`."""
        return size.depth * level

    def observe_prefill(self, seconds: float) -> None:
        self._prefills.add(seconds)

    def observe_cost(self, done: RoundCost, tokens: float | None) -> None:
        self.costs.add(done.rows, done.block, done.seconds)
        if done.forwards and not done.missed:  # a long catch-up says nothing about a level
            self._levels.add(rounded(done.rows), done.drafting / done.forwards)
        self.pauses.observe(done, tokens, self.drafted_rounds >= WHOLE_ROUNDS)

    def observe(self, size: Size, paths: Sequence[Sequence[int]]) -> None:
        if not paths:
            return
        self.drafted_rounds += 1
        self._counted += 1
        memory = min(MEMORY, 1 - 1 / self._counted)
        for entry in self.sizes:
            if entry.nodes <= size.nodes and entry.depth <= size.depth:
                mean = sum(map(entry.holds, paths)) / len(paths)
                before = self._accepted.get(entry, mean)
                self._accepted[entry] = memory * before + (1 - memory) * mean

    def observe_call(self, tokens: float) -> None:
        self._calls.add(tokens)

    def _forget(self) -> None:
        """Let the next round count as much as all before: the text may have changed."""
        self._counted = 1


def tell_sizing(
    sizing: TreeSize, size: Size, levels: Sequence[int], done: RoundCost, outcome: Outcome
) -> None:
    """Tell `sizing` what a round gave and took.

    Args:
        size: of the trees that the round verified, whose nodes are numbered by value.
        levels: that each row may use of them. A row near its limit tells nothing about what a
            whole tree would have given.
        done: the round, but for its seconds, which may be known a round late.
        outcome: what it accepted.
    """
    paths: list[list[int]] = []
    if sizing.listens and size.depth:
        paths = [
            [entry - 1 for entry in path[1:]]
            for row, path in enumerate(outcome.path)
            if levels[row] == size.depth
        ]
    tokens = 1 + sum(map(len, paths)) / len(paths) if paths else None
    outcome.round_time.then(
        lambda seconds: sizing.observe_cost(replace(done, seconds=seconds), tokens)
    )
    sizing.observe(size, paths)
