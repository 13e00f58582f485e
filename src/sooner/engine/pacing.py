"""When a prompt may be prefilled beside rows that decode: while their own tokens are in time.

A row has so many seconds a token, counted from its first one. What it has not used is its slack,
and a piece of a prompt begins when every row has slack for it and for the round behind it: dynamic
chunking by slack (QoServe, arXiv 2503.22562), of chunks as Sarathi-Serve has them (arXiv
2403.02310). Without a pace prompts come first, and rows that decode wait for each of them.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable

from ..checks import check_number

PATIENCE = 4.0
"""Seconds that a prompt is held back at most."""
REMEMBERED = 8
"""Pieces of a kind by which the next one is judged."""


class TokenPace:
    """Says when rows that decode have slack for a piece of a prompt.

    Args:
        seconds: that a token of a row may take, on average over its answer so far.
        patience: seconds behind its arrival after which a prompt is held back no more: a load that
            never leaves any slack is served as without a pace.
        clock: seconds, of any origin.

    Attributes:
        round: seconds of the last round.

    Raises:
        SoonerError: a time that is not above 0.
    """

    def __init__(
        self,
        seconds: float,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_number("seconds", seconds, above=True)
        self.seconds, self.patience, self.clock = seconds, patience, clock
        self.round = 0.0
        self._costs: dict[Hashable, deque[float]] = {}

    def allows(self, kind: Hashable, arrived: float, rows: Iterable[tuple[float, int]]) -> bool:
        """Returns whether a piece may be prefilled now.

        Args:
            kind: of the piece: those of one kind cost about the same. What was never seen costs
                nothing, so that it is seen.
            arrived: when the prompt came.
            rows: of each that decodes the time of its first token, and how many it has generated.
        """
        now = self.clock()
        if now - arrived >= self.patience:
            return True
        ready = now + self.cost(kind) + self.round
        return all(ready - first <= self.seconds * tokens for first, tokens in rows)

    def cost(self, kind: Hashable) -> float:
        """Seconds that a piece of a kind takes: the second most of those seen last, as one that
        was interrupted tells nothing."""
        seen = sorted(self._costs.get(kind, ()))
        return seen[max(len(seen) - 2, 0)] if seen else 0.0

    def took(self, kind: Hashable, seconds: float) -> None:
        """Records how long a piece took."""
        self._costs.setdefault(kind, deque(maxlen=REMEMBERED)).append(seconds)


def size_of(tokens: int) -> int:
    """Returns sizes of pieces that cost about the same: powers of two."""
    return math.ceil(math.log2(max(tokens, 1)))
