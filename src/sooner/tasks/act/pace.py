"""Measured seconds of a policy call by method and batch size, and the choice by them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

RECENT = 15
"""Calls that a median is taken of."""
TRIALS = 3
"""Calls of each method before they are compared."""
AGAIN = 50
"""Calls after which the slower method is measured once more."""
MARGIN = 1.02
"""Factor by which a method must be faster than plain decoding to be preferred."""


class CallTimes:
    """Measured seconds of a call, by method and number of rows.

    One thread may add while another asks, as in a server: what is read is copied first.
    """

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, int], deque[float]] = {}

    def add(self, method: str, rows: int, seconds: float) -> None:
        """A call over `rows` rows took `seconds`."""
        self._seconds.setdefault((method, rows), deque(maxlen=RECENT)).append(seconds)

    def count(self, method: str, rows: int) -> int:
        """Calls known, at most `RECENT`."""
        return len(self._seconds.get((method, rows), ()))

    def median(self, method: str, rows: int) -> float | None:
        """Of calls over exactly so many rows; `None` where there was none."""
        times = self._seconds.get((method, rows))
        return median(list(times)) if times else None

    def expected(self, method: str, rows: int) -> float | None:
        """Seconds that a call will take: as measured, else those of the next larger batch, else of
        the largest, taken up in proportion. `None` where the method was never run."""
        if (seconds := self.median(method, rows)) is not None:
            return seconds
        sizes = sorted(size for name, size in list(self._seconds) if name == method)
        if not sizes:
            return None
        near = next((size for size in sizes if size >= rows), sizes[-1])
        seconds = self.median(method, near)
        return None if seconds is None else seconds * max(rows / near, 1.0)


class Choice:
    """Which of several methods to run, by what they were measured to take.

    Each is run `TRIALS` times for every size of batch; then the quickest is, and the others once
    in `AGAIN` calls.

    Args:
        pace: where calls are measured.
        arms: methods; the first needs no margin to be preferred.
    """

    def __init__(self, pace: CallTimes, arms: Sequence[str]) -> None:
        self.pace, self.arms = pace, tuple(arms)
        self._calls: dict[int, int] = {}

    def pick(self, rows: int) -> str:
        """The method of the next call over `rows` rows."""
        calls = self._calls[rows] = self._calls.get(rows, 0) + 1
        fewest = min(self.arms, key=lambda arm: self.pace.count(arm, rows))
        if self.pace.count(fewest, rows) < TRIALS:
            return fewest
        best = self.best(rows)
        if calls % AGAIN == 0:
            others = [arm for arm in self.arms if arm != best]
            return others[calls // AGAIN % len(others)] if others else best
        return best

    def best(self, rows: int) -> str:
        """The quickest, as far as is known."""

        def cost(arm: str) -> float:
            seconds = self.pace.expected(arm, rows)
            known = float("inf") if seconds is None else seconds
            return known if arm == self.arms[0] else known * MARGIN

        return min(self.arms, key=cost)
