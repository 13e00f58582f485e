"""What rounds and calls cost, and how often drafts are accepted, measured as decoding runs."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

PLAIN_ROUNDS, PLAIN_EVERY = (1, 5), 128
"""Rounds before the first and the second plain one, which times what drafting has to beat (two, so
that one stalled measurement does not decide), and rounds between two later ones."""

LONG_MEMORY = 0.995
"""The weight for what lasts from run to run: some hundred rounds count."""
PRIOR, WEIGHT = 2 / 3, 3.0
"""Acceptance that is expected before anything is known, and draft tokens' worth of that belief."""
LOOKUP = "found"
"""In the kind of drafts that are found in a row's own text: `(FOUND, kind of its prompt)`."""
ENOUGH = 12.0
"""Verified draft tokens from which on acceptance counts as known."""


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
        seconds: from when the draft was handed over until it was verified.
        members: rows of the draft forwards; `None` is all of them.
    """

    rows: int = 1
    block: int = 1
    drafting: float = 0.0
    forwards: int = 0
    missed: int = 0
    seconds: float = 0.0
    members: int | None = None

    @property
    def drafting_rows(self) -> int:
        """Rows of the draft forwards."""
        return self.rows if self.members is None else self.members

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


class LinearTimes:
    """Seconds as a sum of counts, each at a price: least squares over recent times.

    Relative errors count, so that small sizes are met as well as large ones. Prices are not
    negative; those that what was seen does not tell apart are as `usual`.

    Args:
        usual: prices in proportion to each other, of which the first is of what is always there.

    Attributes:
        count: of times so far.
    """

    FORGET, DOUBT = 0.997, 0.01

    def __init__(self, usual: Sequence[float]) -> None:
        self.usual, self.count = tuple(usual), 0
        size = len(self.usual)
        self._products = [[0.0] * size for _ in range(size)]
        self._sums = [0.0] * size
        self._prices: list[float] | None = None

    def add(self, counts: Sequence[float], seconds: float) -> None:
        """So many of each took `seconds`."""
        if seconds <= 0:
            return
        self.count += 1
        self._prices = None
        # In units of the usual prices: a sum of their multiples over `seconds` is to be 1.
        shares = [price * many / seconds for price, many in zip(self.usual, counts, strict=True)]
        for row, share in enumerate(shares):
            self._sums[row] = self.FORGET * self._sums[row] + share
            for column, other in enumerate(shares):
                old = self.FORGET * self._products[row][column]
                self._products[row][column] = old + share * other

    def seconds(self, counts: Sequence[float]) -> float:
        """Returns estimate; 0 before the first."""
        if not self.count:
            return 0.0
        if self._prices is None:
            self._prices = self._solved()
        return sum(price * many for price, many in zip(self._prices, counts, strict=True))

    def _solved(self) -> list[float]:
        left = list(range(len(self.usual)))
        while True:
            solution = self._regress(left)
            if min(solution) >= 0 or len(left) == 1:
                break
            left.pop(solution.index(min(solution)))
        prices = [0.0] * len(self.usual)
        for place, factor in zip(left, solution, strict=True):
            prices[place] = max(factor, 0.0) * self.usual[place]
        return prices

    def _regress(self, left: Sequence[int]) -> list[float]:
        """Returns multiples of the usual prices of those `left`; a little pulls all to one
        multiple.
        """
        whole = sum(sum(line) for line in self._products)
        level = sum(self._sums) / whole  # if all were the same
        pull = self.DOUBT * whole / len(self.usual) ** 2
        lines = [
            [self._products[row][column] + pull * (row == column) for column in left]
            + [self._sums[row] + pull * level]
            for row in left
        ]
        for place, pivot in enumerate(lines):  # Gauss and Jordan; positive definite by the pull
            pivot[:] = [value / pivot[place] for value in pivot]
            for other in lines:
                if other is not pivot:
                    times = other[place]
                    other[:] = [value - times * by for value, by in zip(other, pivot, strict=True)]
        return [line[-1] for line in lines]


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
        """Returns estimated time of such a round."""
        key, size = rounded(rows), rounded(block)
        times = self._by_rows.get(key)
        if times is not None and (len(times.sizes) > 1 or times.sizes[0] == size):
            return times.seconds(size)
        return self._by_tokens.seconds(rounded(rows * block))

    def since_plain(self, rows: int) -> int:
        """Returns rounds over so many rows since a plain one."""
        return self._since[rounded(rows)]

    def is_plain_due(self, rows: int) -> bool:
        """Returns whether the next round should be plain, to time what drafting has to beat: early,
        then seldom.
        """
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
        rest = [way for way in self.ways if way != best]
        if not rest or self._since[rows] < self._wait.get(rows, self._again):
            return best
        return rest[self._turn % len(rest)]

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
        """Returns whether each way has been tried often enough."""
        return all(self.counts[way, rows] >= self._tries for way in self.ways)

    def expected(self, way: str, rows: int = 1) -> float | None:
        """Returns seconds that a call will take: as measured, else those of the next larger batch,
        else of the largest, taken up in proportion. `None` where the way was never timed.
        """
        sizes = sorted(size for name, size in list(self._times) if name == way)
        if not sizes:
            return None
        near = next((size for size in sizes if size >= rows), sizes[-1])
        seconds = self._times[way, near].typical
        return None if seconds is None else seconds * max(rows / near, 1.0)


class Acceptance:
    """How often draft tokens are accepted, kept from run to run if it is handed on.

    For one pair of models and one way to draft and sample. The times of one run are not those of
    the next: they follow the prompt's length and the batch, and a few rounds measure them anew.

    Args:
        whole: of all kinds of prompts, where this is of one.
        kind: of the prompts.

    Attributes:
        accepted, refused: draft tokens, those of old rounds with less weight.
        load: of all kinds together, see `load.load_of`.
    """

    def __init__(self, whole: Acceptance | None = None, kind: Hashable = None) -> None:
        self.accepted = self.refused = 0.0
        self.whole, self.kind = whole, kind
        self.load: Any = None
        self._kinds: dict[Hashable, Acceptance] = {}

    def of(self, kind: Hashable) -> Acceptance:
        """That of prompts of one kind: a draft that is right about pictures may be wrong about
        text. Until enough of them was seen, it leans on all."""
        if self.whole is not None:
            return self.whole.of(kind)
        # What is found in a text says nothing about a model's drafts, nor they about that.
        made = Acceptance(None if is_lookup(kind) else self, kind)
        return self._kinds.setdefault(kind, made)

    def observe(self, drafted: Sequence[int], accepted: Sequence[int]) -> None:
        """A round verified `drafted` tokens of each row and took `accepted` of them."""
        if not any(drafted):
            return
        if self.whole is not None:
            self.whole.observe(drafted, accepted)
        rows = sum(many > 0 for many in drafted)
        good, bad = verdicts(drafted, accepted)
        decay = LONG_MEMORY**rows
        self.accepted = decay * self.accepted + good * len(drafted)
        self.refused = decay * self.refused + bad * len(drafted)

    @property
    def is_known(self) -> bool:
        """Whether enough was seen to choose by."""
        return self.accepted + self.refused >= ENOUGH

    @property
    def rate(self) -> float:
        """Estimated chance that a draft token is accepted; `PRIOR` before the first."""
        expected = PRIOR if self.whole is None else self.whole.rate
        return (self.accepted + WEIGHT * expected) / (self.accepted + self.refused + WEIGHT)

    @property
    def rates(self) -> dict[Hashable, float]:
        """`rate` of each kind, this one among them; of what is found in texts once it is known."""
        whole = self.whole or self
        kinds = (self, *whole._kinds.values())
        return {
            entry.kind: entry.rate for entry in kinds if entry.is_known or not is_lookup(entry.kind)
        }


def is_lookup(kind: Hashable) -> bool:
    """Returns whether drafts of this kind are found in texts."""
    return isinstance(kind, tuple) and kind[:1] == (LOOKUP,)


def verdicts(drafted: Sequence[int], accepted: Sequence[int]) -> tuple[float, float]:
    """Draft tokens accepted and refused in a round, mean over rows.

    Behind the first refusal of a row nothing is verified, so a row refuses one token or none.
    """
    rows = len(drafted)
    refused = sum(good < many for many, good in zip(drafted, accepted, strict=True))
    return sum(accepted) / rows, refused / rows
