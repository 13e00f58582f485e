"""How large a tree to draft: a fixed one, or the one that measurably pays."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..sizing import ForwardCosts, Recent

logger = logging.getLogger("sooner")

PAUSE, LONGEST_PAUSE = 32, 512
"""Plain rounds before drafting is tried again; doubled after each failure."""

PLAIN_ROUNDS, PLAIN_EVERY = (3, 7), 64
"""Rounds that are plain although drafting pays, to time a plain step."""

WHOLE_ROUNDS, WHOLE_EVERY = 6, 64
"""Rounds with the largest tree: the first ones, and now and then, since a small tree tells nothing
about what a larger one would have had accepted."""

MEMORY = 0.95
"""Weight that what was accepted so far keeps from round to round."""

NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Numbers of nodes that are weighed against each other."""


@dataclass(frozen=True)
class Size:
    """Of a draft tree: its most nodes, and its levels; nothing is plain decoding."""

    nodes: int
    depth: int


NOTHING = Size(0, 0)


class EagleSizing(Protocol):
    """Chooses the tree of each round from what the rounds before it cost and gave."""

    largest: Size
    listens: bool

    def choose(self, room: int, is_open: bool) -> Size: ...

    def observe_prefill(self, seconds: float) -> None: ...

    def observe_draft(self, depth: int, seconds: float) -> None: ...

    def observe_round(
        self, block: int, size: Size, paths: Sequence[Sequence[int]], seconds: float
    ) -> None: ...

    def observe_call(self, tokens: float) -> None: ...


class FixedSize:
    """Always the same tree; learns nothing."""

    listens = False

    def __init__(self, largest: Size) -> None:
        self.largest = largest

    def choose(self, room: int, is_open: bool) -> Size:
        return self.largest

    def observe_prefill(self, seconds: float) -> None:
        """Nothing to learn."""

    def observe_draft(self, depth: int, seconds: float) -> None:
        """Nothing to learn."""

    def observe_round(
        self, block: int, size: Size, paths: Sequence[Sequence[int]], seconds: float
    ) -> None:
        """Nothing to learn."""

    def observe_call(self, tokens: float) -> None:
        """Nothing to learn."""


class MeasuredSize:
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
    """

    listens = True

    def __init__(self, largest: Size) -> None:
        self.largest = largest
        counts = sorted({size for size in NODES if size < largest.nodes} | {largest.nodes})
        self.sizes = [Size(n, d) for d in range(1, largest.depth + 1) for n in counts if n >= d]
        self.costs = ForwardCosts()
        self.rounds = self.drafted_rounds = 0
        self.note: Callable[[str], None] = logger.info
        self._levels, self._prefills, self._calls = Recent(), Recent(), Recent()
        self._accepted: dict[Size, float] = {}
        self._plain_left, self._pause, self._trial = 0, PAUSE, 0
        self._chosen: Size | None = None

    def choose(self, room: int, is_open: bool) -> Size:
        """The tree of the next round.

        Args:
            room: most draft tokens that a row may still say.
            is_open: the head has read the prompt.
        """
        if self._plain_left > 0:
            self._plain_left -= 1
            return NOTHING
        if room < 1 or self._is_plain_due():
            return NOTHING
        if self._is_whole_due():
            return self.largest
        fitting = [size for size in self.sizes if size.depth <= room]
        gains = self._gains(fitting, room, is_open)
        best = max(fitting, key=lambda size: gains[size])
        if gains[best] >= 1.0:
            self._say(best, gains[best])
            return best
        # The end of a call, where little is left to win, decides for itself alone.
        return self._give_up(best, gains[best]) if room >= self.largest.depth else NOTHING

    def gain(self, size: Size, room: int = 1 << 30, is_open: bool = True) -> float:
        """Speed with a tree of `size` as a multiple of plain decoding's."""
        return self._gains([size], room, is_open)[size]

    def _gains(self, sizes: Sequence[Size], room: int, is_open: bool) -> dict[Size, float]:
        verify = {nodes: self.costs.seconds(1 + nodes) for nodes in {one.nodes for one in sizes}}
        level, plain, reading = self._levels.typical or 0.0, self.costs.seconds(1), 0.0
        if not is_open:
            tokens = min(self._calls.typical or room, room)
            reading = (self._prefills.typical or 0.0) / max(tokens, 1.0)
        gains = {}
        for size in sizes:
            seconds = size.depth * level + verify[size.nodes]
            gains[size] = plain / (seconds / (1.0 + self._accepted.get(size, 0.0)) + reading)
        return gains

    def observe_prefill(self, seconds: float) -> None:
        """The head took `seconds` for a prompt."""
        self._prefills.add(seconds)

    def observe_draft(self, depth: int, seconds: float) -> None:
        """A tree of `depth` levels took `seconds`."""
        self._levels.add(seconds / depth)

    def observe_round(
        self, block: int, size: Size, paths: Sequence[Sequence[int]], seconds: float
    ) -> None:
        """A round verified trees of at most `size`.

        Args:
            block: tokens of a row that were verified, the root included.
            paths: of each row, the ranks by value of the nodes that were accepted, from the root
                down; rows that may not use all levels are left out.
            seconds: from the draft to the commit.
        """
        self.rounds += 1
        self.costs.add(block, seconds)
        if not paths:
            return
        self.drafted_rounds += 1
        memory = min(MEMORY, 1 - 1 / self.drafted_rounds)
        for one in self.sizes:
            if one.nodes <= size.nodes and one.depth <= size.depth:
                mean = sum(_within(path, one) for path in paths) / len(paths)
                before = self._accepted.get(one, mean)
                self._accepted[one] = memory * before + (1 - memory) * mean

    def observe_call(self, tokens: float) -> None:
        """A call ended after `tokens` tokens a row."""
        self._calls.add(tokens)

    def _is_plain_due(self) -> bool:
        """Now and then a plain round tells what drafting has to beat."""
        return self.rounds in PLAIN_ROUNDS or self.rounds % PLAIN_EVERY == PLAIN_EVERY - 1

    def _is_whole_due(self) -> bool:
        if self._trial > 0:
            self._trial -= 1
            return True
        is_ready = self.costs.knows_plain and self.drafted_rounds >= WHOLE_ROUNDS
        return not is_ready or self.drafted_rounds % WHOLE_EVERY == 0

    def _give_up(self, best: Size, gain: float) -> Size:
        self.note(
            f"nodes auto: plain decoding for {self._pause} rounds, since {best.nodes} nodes on "
            f"{best.depth} levels would run at {gain:.2f}x plain"
        )
        self._plain_left = self._pause - 1
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._trial, self._chosen = 2, NOTHING
        return NOTHING

    def _say(self, best: Size, gain: float) -> None:
        if self._chosen == NOTHING:
            self._pause = PAUSE
        if best != self._chosen:
            self.note(
                f"nodes auto: {best.nodes} nodes on {best.depth} levels, expected {gain:.2f}x plain"
            )
            self._chosen = best


def _within(path: Sequence[int], size: Size) -> int:
    """Nodes of an accepted path that a tree of `size` would have had, from the root down."""
    count = 0
    for rank in path[: size.depth]:
        if rank >= size.nodes:
            break
        count += 1
    return count
