"""One controller of draft lengths: it measures what rounds cost and picks the draft that pays most.

A method lists its candidates: lengths of a chain, trees of some nodes and levels, what a draft
beside the target has ready. With `T(rows, block)` the time of a target forward, the controller
takes the candidate with the most

    tokens * T(rows, 1) / (drafting + T(rows, block))

which is its *gain*, the speed over plain decoding's. Plain decoding is always a candidate. Where
nothing else pays, rounds are plain, and a small draft is tried again now and then: trials lose at
most `TRIAL_SHARE` of the time.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Any, Generic, TypeVar

import numpy as np

from ..engine.stats.run import Stats

MIN_GAIN = 1.01
"""Gain that a draft has to promise."""
TRIAL_SHARE = 0.01
"""Share of the time that trials may lose against plain decoding."""
PAUSE, LONGEST_PAUSE = 8, 256
"""Plain rounds before a draft is tried again; doubled after each failure, up to the second."""
FOR_GOOD = 1 << 30
"""A pause without an end: the longer it is, the more its trial would have to catch up with."""
DEBT, CREDIT = 4.0, 16.0
"""Plain rounds' time that drafts may have lost before they pause, and that of gains that counts."""
REFRESH, FEWEST = 0.005, 8
"""Share of the time that plain rounds may lose which time again what drafts have to beat, and the
fewest rounds between two of them: a draft that gains little is compared often."""
CONFIRMED = 2
"""Draft forwards to be timed before drafts are given up for their cost: one may have stalled."""
LATE = 2
"""Rounds after which the time of a draft is expected, as GPUs measure it."""
RECENT = 5
"""Times that a median is of."""
MAX_STALL = 2.0
"""Multiple of what was expected above which a time is cut: something else has had the processor."""
FORGET, PULL = 0.98, 0.5
"""Weight that the prices of `Times` keep with each time, and times' worth of belief in them."""
KEPT = 64
"""Counts that `Times` knows medians of, the last seen ones."""
REFIT_EVERY = 8
"""Times between two fits of the prices, but for the first ones."""
ROUND_PRICES, DRAFT_PRICES = (1.0, 0.15, 0.01, 0.05), (1.0, 0.3)
"""What a forward, each row of it, each ragged row and each draft token cost relative to each other,
of the target and of a draft: only for what has been timed at a single size."""

Size = TypeVar("Size")


@dataclass
class RoundCost:
    """Size and time of a round, which may be known later than what the round gave.

    Attributes:
        rows, block: of the target's forward; the root counts.
        drafting: seconds that drafting took.
        forwards: draft forwards, or levels of a tree.
        missed: tokens that the first of them had to catch up with, where that took time.
        seconds: from when the draft was handed over until it was verified.
        members: rows of the draft forwards; `None` is all of them.
        is_ragged: rows are of several lengths, so that a forward takes longer.
    """

    rows: int = 1
    block: int = 1
    drafting: float = 0.0
    forwards: int = 0
    missed: int = 0
    seconds: float = 0.0
    members: int | None = None
    is_ragged: bool = False

    @property
    def drafting_rows(self) -> int:
        return self.rows if self.members is None else self.members

    def add_drafting(self, seconds: float) -> None:
        """Records how long drafting took; known before the time of the round is."""
        self.drafting += seconds


class Times:
    """Seconds as a sum of counts, each at a price, corrected by medians of what was timed.

    Prices are fitted by least squares over recent relative errors, and are never negative. Where
    the same counts but for the last were timed, these move the estimate, in proportion between two.
    `usual` are prices in proportion to each other, for what the times so far do not tell apart, and
    `count` is that of the times.
    """

    def __init__(self, usual: Sequence[float]) -> None:
        self.usual, self.count = np.array(usual), 0
        self._prices = list(usual)
        # By counts, the longest unseen first: the last few times, and `count` at the last of them.
        self.timed: dict[tuple[float, ...], tuple[deque[float], int]] = {}
        self._ratios: dict[tuple[float, ...], float] = {}  # of some of them, since they changed

    def add(self, counts: tuple[float, ...], seconds: float) -> None:
        """Records that so many of each took `seconds`, more than 0."""
        times, _ = self.timed.pop(counts, (deque[float](maxlen=RECENT), 0))
        if self.count and not times:
            seconds = min(seconds, MAX_STALL * self.seconds(counts))
        times.append(seconds)
        self.count += 1
        self.timed[counts] = times, self.count
        self._ratios.pop(counts, None)
        if len(self.timed) > KEPT:
            del self.timed[next(iter(self.timed))]
        if self.count <= REFIT_EVERY or not self.count % REFIT_EVERY:
            self._prices = self._fit()
            self._ratios.clear()

    def seconds(self, counts: tuple[float, ...]) -> float:
        """Returns estimate; 0 before the first time."""
        if counts in self.timed:
            return self._priced(counts) * self._ratio(counts)
        return float(self.line(counts[:-1], np.array([counts[-1]]))[0])

    def line(self, first: tuple[float, ...], last: np.ndarray) -> np.ndarray:
        """Returns estimates for several last counts `[n]` behind the same first ones; 0 before the
        first time."""
        if not self.count:
            return np.zeros(len(last))
        priced = self._priced((*first, 0)) + self._prices[-1] * last
        near = sorted(counts for counts in self.timed if counts[:-1] == first)
        if not near:
            return priced
        return priced * np.interp(
            last, [counts[-1] for counts in near], list(map(self._ratio, near))
        )

    def _priced(self, counts: tuple[float, ...]) -> float:
        return sum(map(mul, self._prices, counts))

    def _ratio(self, counts: tuple[float, ...]) -> float:
        """Returns what these took over their price; few times are believed only so far."""
        if (ratio := self._ratios.get(counts)) is None:
            times, _ = self.timed[counts]
            over = _typical(times) / self._priced(counts)
            ratio = (len(times) * over + PULL) / (len(times) + PULL)
            self._ratios[counts] = ratio
        return ratio

    def _fit(self) -> list[float]:
        """Returns prices; a little pulls all to one multiple of the usual ones."""
        counts = np.array(list(self.timed))
        seconds = np.array([_typical(times) for times, _ in self.timed.values()])
        weights = np.array(
            [len(times) * FORGET ** (self.count - at) for times, at in self.timed.values()]
        )
        # In units of the usual prices: a sum of their multiples over the time is to be 1.
        shares = self.usual * counts / seconds[:, None]
        products, sums = (weights * shares.T) @ shares, weights @ shares
        whole = float(products.sum())
        usual = float(sums.sum()) / whole  # if all were the same multiple
        left = list(range(len(self.usual)))
        pull = 0.01 * whole / len(left) ** 2
        while True:
            kept = products[np.ix_(left, left)] + pull * np.eye(len(left))
            solution = np.linalg.solve(kept, sums[left] + pull * usual)
            if solution.min() >= 0 or len(left) == 1:
                break
            left.pop(int(solution.argmin()))
        multiples = np.full(len(self.usual), 0.001 * usual)  # no count is quite free
        multiples[left] = np.maximum(solution, multiples[left])
        return [float(price) for price in multiples * self.usual]


def _typical(times: Collection[float]) -> float:
    """Returns the lower median, which one stall can't move."""
    return sorted(times)[(len(times) - 1) // 2]


class StepTimes:
    """Holds seconds of a round by its rows and block, and of a draft forward by its rows."""

    def __init__(self) -> None:
        self.rounds, self.drafts = Times(ROUND_PRICES), Times(DRAFT_PRICES)
        self.plain_rounds = 0  # timed ones

    def add(self, done: RoundCost) -> None:
        """A round was timed; a draft that had long to catch up says nothing about one step."""
        if done.seconds <= 0:  # a coarse clock
            return
        self.plain_rounds += done.block == 1
        self.rounds.add(_counts(done.rows, done.block, done.is_ragged), done.seconds)
        if done.forwards and done.drafting_rows and not done.missed:
            self.add_draft(done.drafting_rows, done.drafting / done.forwards)

    def add_draft(self, rows: float, seconds: float) -> None:
        """Records that a draft forward over so many rows took `seconds`."""
        if seconds > 0:
            self.drafts.add((1, rows), seconds)

    def round(self, rows: float, block: float, is_ragged: bool = False) -> float:
        """Returns seconds of a round; one with a draft is no shorter than a plain one."""
        plain = self.rounds.seconds(_counts(rows, 1, is_ragged))
        if block == 1:
            return plain
        return max(plain, self.rounds.seconds(_counts(rows, block, is_ragged)))

    def round_line(self, rows: float, blocks: np.ndarray, is_ragged: bool = False) -> np.ndarray:
        """Returns seconds of rounds over several blocks `[n]`, as `round`."""
        first, plain = _counts(rows, 1, is_ragged)[:-1], self.round(rows, 1, is_ragged)
        return np.maximum(plain, self.rounds.line(first, rows * (blocks - 1)))

    def raggedness(self, rows: float) -> float:
        """Returns seconds that a plain round takes longer where rows are of several lengths."""
        return max(self.round(rows, 1, True) - self.round(rows, 1), 0.0)

    def draft(self, rows: float) -> float:
        """Returns seconds of a draft forward; 0 before the first, and of no rows."""
        return self.drafts.seconds((1, rows)) if rows else 0.0


def _counts(rows: float, block: float, is_ragged: bool) -> tuple[float, ...]:
    return (1, rows, rows * is_ragged, rows * (block - 1))


@dataclass(frozen=True)
class Candidates(Generic[Size]):
    """Lists drafts that could be next, at least one.

    Attributes:
        sizes: what the method calls their sizes.
        blocks: entries of a row in the target's forward, the root counts, `[sizes]`.
        tokens: that a row may expect of the round, `[sizes]`.
        drafting: seconds that drafting takes, `[sizes]`.
        trial: which of them tells whether drafting pays.
        is_timed: drafting takes forwards, which have to be timed.
        fall: acceptance of earlier rounds and the recent one, where that is clearly lower.
    """

    sizes: Sequence[Size]
    blocks: np.ndarray
    tokens: np.ndarray
    drafting: np.ndarray | float = 0.0
    trial: int = 0
    is_timed: bool = False
    fall: tuple[float, float] | None = None


class Controller(Generic[Size]):
    """The best candidate while it pays, plain rounds while none does, a trial now and then.

    A balance says what drafts have won against plain decoding, in seconds: each round adds
    `TRIAL_SHARE` of a plain one, each draft what it won or lost. A pause lasts until the next trial
    is paid for, and is twice as long after each failure. Where candidates promise a gain that
    rounds do not show, the balance runs out, and rounds are plain as well.

    Where drafts have paid, and pay no more since clearly fewer are accepted than before, the note
    is an alarm, once a run.

    Rows that begin together are as long as each other until they draft, which makes every later
    round dearer (`RoundCost.is_ragged`). That counts as the drafts' loss, and a trial in a batch
    that is still even is put off until it is paid for.

    Attributes:
        option: name of the method's option, for notes.
        note: called with each change of mind in one line, and with the kind of an alarm behind it,
            as `Stats.note`; `times`: of rounds and draft forwards.
        catch_up: seconds that a draft takes later for each plain round that it did not see.
    """

    def __init__(self, option: str) -> None:
        self.option = option
        self.note: Callable[..., None] = Stats().note
        self.times = StepTimes()
        self.balance, self.catch_up = 0.0, 0.0
        self._since = Counter[int]()  # rounds over so many rows since a plain one
        self._was_even = False  # the rows were as long as each other before they drafted
        self._is_paused, self._left, self._pause = False, 0, PAUSE
        self._has_paid = self._has_alarmed = False  # drafts since the last alarm, and this run
        self._rows, self._block = 0, 0  # of the last choice
        self._wait = 0  # rounds until the time of a draft should be known

    @property
    def is_resting(self) -> bool:
        """Whether the next rounds are plain, as long as the rows stay the same."""
        return self._is_paused and self._left > 0

    def begin(self, note: Callable[..., None]) -> None:
        """A run begins, for whose first draft nothing has to be caught up with."""
        self.note, self.catch_up = note, 0.0
        self._was_even = self._has_alarmed = False
        self._left = min(self._left, LONGEST_PAUSE)

    def reconsider(self) -> None:
        """Other rows decode: a pause ends if drafting pays with these."""
        self._rows = 0

    def choose(
        self, rows: int, candidates: Callable[[], Candidates[Size]], *,
        forget: Callable[[], None] = lambda: None, may_pause: bool = True,
        is_ragged: bool | None = None, left: float = 0.0,
    ) -> Size | None:  # fmt: skip
        """Returns the size of the next draft; `None` is a plain round.

        Args:
            rows: of the next round. Where they change, a pause ends if drafting pays with these.
            candidates: what could be drafted, by what is known now.
            forget: called before a trial, so that it counts more than what was seen long ago.
            may_pause: the answer holds for later rounds as well.
            is_ragged: the rows are of several lengths; `None`: their rounds are timed alike.
            left: plain rounds until they end, where they are not ragged and end together.
        """
        is_resting, has_changed = self.is_resting, rows != self._rows
        self._rows, self._wait = rows, max(self._wait - 1, 0)
        if is_resting:
            self._left -= 1
        if not self.times.plain_rounds or (is_resting and not has_changed):
            return None
        is_even = is_ragged is False and rows > 1
        self._was_even |= is_even
        table, plain = candidates(), self.times.round(rows, 1, is_ragged is True)
        surcharge = left * self.times.raggedness(rows) if is_even else 0.0
        if self._is_paused and not is_resting and surcharge <= max(self.balance, 0.0):
            self._is_paused = False
            forget()
            return self._take(table, table.trial)
        steps = self.times.round_line(rows, table.blocks, is_ragged is not None and rows > 1)
        gains = table.tokens * plain / (table.drafting + steps)
        best = int(gains.argmax())
        gain = float(gains[best])
        is_paid = self.balance >= -DEBT * plain
        if is_paid and table.is_timed and self.times.drafts.count < CONFIRMED:
            free = float((table.tokens * plain / steps).max())
            if free >= MIN_GAIN and (gain < MIN_GAIN or not self.times.drafts.count):
                return None if self._wait else self._take(table, table.trial)
        if gain >= MIN_GAIN and is_paid:
            self._go_on(table.sizes[best], int(table.blocks[best]), gain)
            is_due = self._since[rows] >= max((gain - 1) / REFRESH, FEWEST)
            return None if is_due else self._take(table, best)
        if table.fall is not None and self._has_paid and not self._has_alarmed:
            usual, recent = table.fall
            text = f"acceptance fell from {usual:.2f} to {recent:.2f}, and drafts pay no more"
            self.note(f"{self.option} auto: {text}; decoding goes on plainly", "acceptance")
            self._has_paid, self._has_alarmed = False, True
        if may_pause and not is_resting:
            drafting = float(np.broadcast_to(table.drafting, gains.shape)[table.trial])
            loss = drafting + float(steps[table.trial]) - plain + surcharge
            self._rest(table.sizes[best], gain, loss, plain)
        return None

    def observe(
        self, done: RoundCost, tokens: float | None = None, is_counted: bool = True
    ) -> None:
        """A round was timed.

        Args:
            tokens: that it gave a row, on average; `None`: that is not known.
            is_counted: the balance changes.
        """
        self.times.add(done)
        self._since[done.rows] = 0 if done.block == 1 else self._since[done.rows] + 1
        if not is_counted:
            return
        plain = self.times.round(done.rows, 1, done.is_ragged and not self._was_even)
        self.balance += TRIAL_SHARE * plain
        if done.block == 1 and done.is_ragged and self._was_even:
            self.balance -= self.times.raggedness(done.rows)
        if done.block > 1 and tokens is not None:
            won = tokens * plain - done.drafting - done.seconds
            self.balance += max(won, -DEBT * plain / 2)  # a stall
        self.balance = min(self.balance, CREDIT * plain)

    def _take(self, candidates: Candidates[Size], place: int) -> Size:
        self._wait = LATE
        return candidates.sizes[place]

    def _rest(self, best: Size, gain: float, loss: float, plain: float) -> None:
        """Plain rounds until a trial is paid that takes `loss` longer than a plain round, and what
        catching up takes."""
        earned, debt = TRIAL_SHARE * plain - self.catch_up, loss - self.balance
        rounds = max(self._pause, math.ceil(debt / earned)) if earned > 0 else FOR_GOOD
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        long = f"for {rounds} rounds" if rounds < FOR_GOOD else "from here on"
        why = f"{_text(best)} would run at {gain:.2f}x plain"
        if gain >= MIN_GAIN:
            why = f"drafting has lost time, though {why}"
        self.note(f"{self.option} auto: plain decoding {long}, since {why}")
        self._left, self._is_paused, self._block = rounds - 1, True, 1

    def _go_on(self, size: Size, block: int, gain: float) -> None:
        if self._block == 1:
            self._pause = PAUSE
        self._is_paused, self._left, self._has_paid = False, 0, True
        if abs(block - self._block) > max(1, self._block // 2):
            self.note(f"{self.option} auto: {_text(size)}, expected {gain:.2f}x plain")
            self._block = block


def _text(size: Any) -> str:
    return f"{size} draft tokens a round" if isinstance(size, int) else str(size)


class Quickest:
    """Which of several ways takes the least time, by what whole calls or pages took.

    Each is run a few times for every number of rows; then the quickest is, and the others once in
    a while, since what is requested changes. The wait doubles each time that one of them loses
    again. One thread may add while another picks.

    Args:
        ways: their names; the first needs no margin to be preferred.
        trials: timed calls of each way before they are compared.
        margin: factor by which the first way must be slower than another.
        cold: untimed calls of each way before those.
        again: calls of the quickest after which another is tried; at most eight times as many.
    """

    def __init__(
        self, ways: Sequence[str], *, trials: int = 3, margin: float = 1.02, cold: int = 0,
        again: int = 50,
    ) -> None:  # fmt: skip
        self.ways, self.margin = tuple(ways), margin
        self._tries, self._cold, self._again = cold + trials, cold, again
        self._times: dict[tuple[str, int], deque[float]] = {}
        self._counts = Counter[tuple[str, int]]()
        self._since = Counter[int]()  # calls of the quickest since another one's
        self._wait: dict[int, int] = {}
        self._turn = 0

    def pick(self, rows: int = 1) -> str:
        """Returns the way of the next call over `rows` rows."""
        for way in self.ways:
            if self._counts[way, rows] < self._tries:
                return way
        best = self.best(rows)
        rest = [way for way in self.ways if way != best]
        if not rest or self._since[rows] < self._wait.get(rows, self._again):
            return best
        return rest[self._turn % len(rest)]

    def best(self, rows: int = 1) -> str:
        """Returns the quickest way, as far as is known."""
        seconds = {way: self.expected(way, rows) or math.inf for way in self.ways}
        first = self.ways[0]
        return min(seconds, key=lambda way: seconds[way] * (1 if way == first else self.margin))

    def add(self, way: str, rows: int, seconds: float | None) -> None:
        """A call over `rows` rows took `seconds`; `None`: it tells nothing, but was tried."""
        before, was_known = self.best(rows), self.is_known(rows)
        self._counts[way, rows] += 1
        if seconds is not None and self._counts[way, rows] > self._cold:
            self._times.setdefault((way, rows), deque(maxlen=RECENT)).append(seconds)
        if not was_known or way not in self.ways:
            return
        if way == before:
            self._since[rows] += 1
        else:
            self._since[rows], self._turn = 0, self._turn + 1
            self._wait[rows] = min(2 * self._wait.get(rows, self._again), 8 * self._again)
        if self.best(rows) != before:
            self._wait[rows] = self._again

    def is_known(self, rows: int = 1) -> bool:
        """Returns whether each way has been tried often enough."""
        return all(self._counts[way, rows] >= self._tries for way in self.ways)

    def expected(self, way: str, rows: int = 1) -> float | None:
        """Returns seconds that a call will take, by the median of the last few; else by those of
        the next larger batch, or of the largest in proportion. `None`: never timed."""
        sizes = sorted(size for name, size in list(self._times) if name == way)
        if not sizes:
            return None
        near = next((size for size in sizes if size >= rows), sizes[-1])
        return _typical(self._times[way, near]) * max(rows / near, 1.0)
