"""What rounds and whole calls cost, measured as decoding runs."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

PLAIN_ROUNDS, PLAIN_EVERY = (1, 5), 128
"""Rounds before the first and the second plain one, which times what drafting has to beat (two, so
that one stalled measurement does not decide), and rounds between two later ones."""


class Recent:
    """The typical one of the last few times: their lower median, which one stall can't move."""

    def __init__(self, last: int = 5) -> None:
        self.times: deque[float] = deque(maxlen=last)

    def add(self, seconds: float) -> None:
        self.times.append(seconds)

    @property
    def typical(self) -> float | None:
        if not self.times:
            return None
        times = sorted(self.times)
        return times[(len(times) - 1) // 2]


@dataclass
class RoundCost:
    """Size and time of a round, told to the sizing once its time is known.

    Attributes:
        rows, block: of its forward; the root counts.
        drafting: seconds that drafting took.
        forwards: draft forwards, or levels of a tree.
        missed: tokens that the first of them had to catch up with, where that took time.
        seconds: from when the draft was handed over until it was judged.
    """

    rows: int = 1
    block: int = 1
    drafting: float = 0.0
    forwards: int = 0
    missed: int = 0
    seconds: float = 0.0

    def add_drafting(self, seconds: float) -> None:
        """Drafting took this long; known before the time of the round is."""
        self.drafting += seconds


class SizeTimes:
    """Seconds by size: measured where seen, a line in between, flat outside of a single size."""

    def __init__(self) -> None:
        self.sizes: list[int] = []  # ascending
        self._times: dict[int, Recent] = defaultdict(Recent)
        self._typical: dict[int, float] = {}

    def add(self, size: int, seconds: float) -> None:
        if size not in self._typical:
            insort(self.sizes, size)
        self._times[size].add(seconds)
        self._typical[size] = self._times[size].typical or seconds

    def seconds(self, size: int) -> float:
        """Estimate for `size`; 0 where nothing was ever seen."""
        if size in self._typical:
            return self._typical[size]
        sizes, typical = self.sizes, self._typical
        if not sizes:
            return 0.0
        place = bisect_left(sizes, size)
        if place == 0 or len(sizes) == 1:
            return typical[sizes[0]]
        if place < len(sizes):
            low, high = sizes[place - 1], sizes[place]
            share = (size - low) / (high - low)
            return (1 - share) * typical[low] + share * typical[high]
        first, last = sizes[0], sizes[-1]
        slope = (typical[last] - typical[first]) / (last - first)
        return typical[last] + max(slope, 0.0) * (size - last)


class Costs:
    """Seconds of a round by its rows and its block (root and draft tokens of a row).

    Where fewer than two blocks were timed over so many rows, a round costs what as many tokens
    cost in other batches.

    Attributes:
        rounds, plain_rounds: timed so far, and those of them without a draft.
    """

    def __init__(self) -> None:
        self.rounds = self.plain_rounds = 0
        self._by_rows: dict[int, SizeTimes] = defaultdict(SizeTimes)
        self._by_tokens = SizeTimes()
        self._since: Counter[int] = Counter()  # rounds over so many rows since a plain one

    def add(self, rows: int, block: int, seconds: float) -> None:
        """A round over `rows` blocks of `block` tokens took `seconds`."""
        self.rounds += 1
        self.plain_rounds += block == 1
        key = rounded(rows)
        self._since[key] = 0 if block == 1 else self._since[key] + 1
        self._by_rows[key].add(rounded(block), seconds)
        self._by_tokens.add(rounded(rows * block), seconds)

    def seconds(self, rows: int, block: int) -> float:
        """Estimated time of such a round."""
        key, size = rounded(rows), rounded(block)
        own = self._by_rows.get(key)
        if own is not None and (len(own.sizes) > 1 or own.sizes[0] == size):
            return own.seconds(size)
        return self._by_tokens.seconds(rounded(rows * block))

    def is_plain_due(self, rows: int) -> bool:
        """Whether the next round should be plain, to time what drafting has to beat: early, then
        seldom."""
        first, second = PLAIN_ROUNDS
        if not self.plain_rounds:
            return self.rounds >= first
        if self.plain_rounds == 1 and self.rounds > second:
            return True
        key = rounded(rows)
        is_timed = key in self._by_rows and self._by_rows[key].sizes[0] == 1
        return self._since[key] >= (PLAIN_EVERY if is_timed else second)


def rounded(count: int) -> int:
    """`count` to three binary digits behind the first, so that there are few sizes to time."""
    step = 1 << max(count.bit_length() - 4, 0)
    return -(-count // step) * step


class Quickest:
    """Which of several ways takes the least time, by what whole calls or pages took.

    Each is run a few times for every number of rows; then the quickest is, and the others once in
    a while, since what is asked for changes. The wait doubles each time that one of them loses
    again. One thread may add while another asks, as in a server: what is read is copied first.

    Args:
        ways: their names; the first needs no margin to be preferred.
        trials: timed calls of each way before they are compared.
        margin: factor by which the first way must be slower than another.
        again, rarely: calls of the quickest after which another is tried: at first, and at most.
        cold: untimed calls of each way before those.
        last: calls that count.
    """

    def __init__(
        self,
        ways: Sequence[str],
        *,
        trials: int = 3,
        margin: float = 1.02,
        again: int = 50,
        rarely: int = 400,
        cold: int = 0,
        last: int = 15,
    ) -> None:
        self.ways, self.margin = tuple(ways), margin
        self.counts: Counter[tuple[str, int]] = Counter()
        self._tries, self._cold, self._last = cold + trials, cold, last
        self._times: dict[tuple[str, int], Recent] = {}
        self._again, self._rarely = again, rarely
        self._since: Counter[int] = Counter()  # calls of the quickest since another one's
        self._wait: dict[int, int] = {}
        self._turn = 0

    def pick(self, rows: int = 1) -> str:
        """The way of the next call over `rows` rows."""
        for way in self.ways:
            if self.counts[way, rows] < self._tries:
                return way
        best = self.best(rows)
        others = [way for way in self.ways if way != best]
        if not others or self._since[rows] < self._wait.get(rows, self._again):
            return best
        return others[self._turn % len(others)]

    def best(self, rows: int = 1, ways: Sequence[str] | None = None) -> str:
        """The quickest of `ways`, by default of all that are compared, as far as is known."""
        ways = ways or self.ways

        def cost(way: str) -> float:
            seconds = self.expected(way, rows)
            known = float("inf") if seconds is None else seconds
            return known if way == ways[0] else known * self.margin

        return min(ways, key=cost)

    def add(self, way: str, rows: int, seconds: float | None) -> None:
        """A call over `rows` rows took `seconds`; `None`: it tells nothing, but was tried."""
        before = self.best(rows)
        was_known = self.is_known(rows)
        self.counts[way, rows] += 1
        if seconds is not None and self.counts[way, rows] > self._cold:
            self._times.setdefault((way, rows), Recent(self._last)).add(seconds)
        if not was_known or way not in self.ways:
            return
        if way == before:
            self._since[rows] += 1
        else:
            self._since[rows], self._turn = 0, self._turn + 1
            self._wait[rows] = min(2 * self._wait.get(rows, self._again), self._rarely)
        if self.best(rows) != before:
            self._wait[rows] = self._again

    def is_known(self, rows: int = 1) -> bool:
        """Whether each way has been tried often enough."""
        return all(self.counts[way, rows] >= self._tries for way in self.ways)

    def expected(self, way: str, rows: int = 1) -> float | None:
        """Seconds that a call will take: as measured, else those of the next larger batch, else of
        the largest, taken up in proportion. `None` where the way was never timed."""
        sizes = sorted(size for name, size in list(self._times) if name == way)
        if not sizes:
            return None
        near = next((size for size in sizes if size >= rows), sizes[-1])
        seconds = self._times[way, near].typical
        return None if seconds is None else seconds * max(rows / near, 1.0)
