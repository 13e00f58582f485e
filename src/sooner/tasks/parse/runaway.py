"""Text that repeats itself without end (appendix A: repetition hallucination)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LONGEST = 256
"""Longest period that is looked for, in tokens."""

PERIODS = 6
"""Repetitions that a period needs, however long it is; rows of a table may well be alike."""


class RunawayWatch:
    """Told every token of a text, says when it has been repeating itself for too long.

    A text is a runaway at the first token behind which the last `limit` tokens, and no fewer than
    `PERIODS` periods, each equal the one a period before. That depends on the text alone and not
    on how many tokens came at once, so drafted and plain decoding stop at the same token.

    Args:
        limit: tokens; 0 never stops.

    Attributes:
        sound: tokens from the start to the end of the first period, once `add` was true.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = self.sound = 0
        self._periods = np.arange(1, LONGEST + 1)
        self._last = np.full(LONGEST, -1, dtype=np.int64)  # the token `p` ago at `p - 1`
        self._runs = np.zeros(LONGEST, dtype=np.int64)  # tokens that equal the one `p` before

    def add(self, token: int) -> bool:
        """Whether the text is a runaway now."""
        if not self.limit:
            return False
        self._runs = (self._runs + 1) * (self._last == token)
        self._last[1:] = self._last[:-1]
        self._last[0] = token
        self.count += 1
        over = np.flatnonzero(
            (self._runs >= self.limit) & (self._runs >= (PERIODS - 1) * self._periods)
        )
        if not len(over):
            return False
        self.sound = self.count - int(self._runs[over[0]])
        return True


def runaway(tokens: Sequence[int], limit: int) -> tuple[int, int] | None:
    """How many tokens a runaway text has where it is stopped, and how many of them are sound."""
    watch = RunawayWatch(limit)
    for count, token in enumerate(tokens, start=1):
        if watch.add(token):
            return count, watch.sound
    return None
