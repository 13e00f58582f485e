"""Drafting while it pays, plain rounds while it does not: never slower than plain for long."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from .costs import Costs, RoundCost

logger = logging.getLogger("sooner")

MIN_GAIN = 1.01
"""Speed over plain decoding's that a draft has to promise."""
PAUSE, LONGEST_PAUSE = 32, 256
"""Plain rounds before drafting is tried again, at least; doubled after each failure."""
SHARE = 0.02
"""Share of the time that trials of a draft may lose against plain decoding."""
FOR_GOOD = 1 << 30
"""A pause without an end: catching up with it would cost more than trials may lose."""
LOST, WON = 4.0, 16.0
"""Plain steps' time that drafting may have lost at most, and that of its gains which is kept."""

Size = TypeVar("Size")


@dataclass(frozen=True)
class Candidate(Generic[Size]):
    """A draft that could be next.

    Attributes:
        size: what the method calls its size.
        gain: expected speed, as a multiple of plain decoding's.
        extent: tokens drafted, and `text`: the same in words, for notes.
    """

    size: Size
    gain: float
    extent: int
    text: str


class Pauses(Generic[Size]):
    """The best candidate while it pays, plain rounds while none does, a trial now and then.

    An account says what drafting has won or lost against plain decoding, in seconds: each round
    adds `SHARE` of a plain step, each draft what it won, or takes what it lost. A pause lasts until
    the next trial is paid for, so what trials lose stays below `SHARE`. Where the model promises a
    gain that rounds do not show, the account runs out, and decoding is plain as well.

    Args:
        costs: of rounds.
        option: name of the method's option, for notes.
        note: told each change of mind in one line.
        forget: called before a trial, so that it counts more than what was seen long ago.

    Attributes:
        balance: the account.
        catch_up: seconds that a draft takes later for each plain round that it did not see.
    """

    def __init__(
        self,
        costs: Costs,
        option: str,
        note: Callable[[str], None] | None = None,
        forget: Callable[[], None] = lambda: None,
    ) -> None:
        self.costs, self.option, self.forget = costs, option, forget
        self.note = note or logger.info
        self.balance = self.catch_up = 0.0
        self._owed = 0.0  # what the last trial loses, until its time is known
        self._left, self._pause, self._rows = 0, PAUSE, 0
        self._is_paused, self._extent = False, -1

    @property
    def is_pausing(self) -> bool:
        """Whether the next rounds are plain."""
        return self._left > 0

    def reconsider(self) -> None:
        """Other rows decode: a pause ends if drafting pays with these."""
        self._rows = 0

    def observe(self, done: RoundCost, tokens: float | None, is_charged: bool = True) -> None:
        """A round gave `tokens` a row (`None`: not known); what it lost counts if `is_charged`."""
        plain, won = self.costs.seconds(done.rows, 1), 0.0
        if done.block > 1:
            self._owed = 0.0
        if done.block > 1 and tokens is not None:
            won = max(tokens * plain - done.drafting - done.seconds, -LOST * plain / 2)  # a stall
        if won < 0 and not is_charged:
            won = 0.0
        self.balance = min(self.balance + SHARE * plain + won, WON * plain)

    def choose(
        self,
        rows: int,
        best: Callable[[], Candidate[Size]],
        trial: Callable[[], tuple[Size, float]],
        remark: object = "",
        may_pause: bool = True,
    ) -> Size | None:
        """Returns what to draft next; `None` is a plain round.

        Args:
            rows: of the next round. Where they change, a pause ends if drafting pays with these.
            best: the best candidate by what is known now.
            trial: a small draft, and what it takes in seconds.
            remark: on what is known, for notes.
            may_pause: the answer holds for later rounds as well.
        """
        is_pausing, has_changed = self.is_pausing, rows != self._rows
        self._left, self._rows = max(self._left - 1, 0), rows
        if (is_pausing and not has_changed) or self.costs.is_plain_due(rows):
            return None
        if self._is_paused and not is_pausing:
            self._is_paused = False
            self.forget()
            size, seconds = trial()
            self._owed = max(seconds - self.costs.seconds(rows, 1), 0.0)
            return size
        candidate, plain = best(), self.costs.seconds(rows, 1)
        if candidate.gain >= MIN_GAIN and self.balance >= -LOST * plain:
            self._go_on(candidate, remark)
            return candidate.size
        if may_pause and not is_pausing:
            self._rest(candidate, plain, trial()[1] - plain, remark)
        return None

    def _rest(self, candidate: Candidate[Size], plain: float, loss: float, remark: object) -> None:
        """Plain rounds until a trial that loses `loss` seconds, and what it catches up, is paid."""
        rounds, earned = self._pause, SHARE * plain - self.catch_up
        balance = self.balance - self._owed
        if earned <= SHARE * plain / 8:  # the longer the pause, the dearer its trial
            rounds = FOR_GOOD
        elif loss > balance:
            rounds = max(rounds, math.ceil((loss - balance) / earned))
        why = f"{candidate.text} would run at {candidate.gain:.2f}x plain"
        if candidate.gain >= MIN_GAIN:
            why = f"drafting has lost time, though {why}"
        long = f"for {rounds} rounds" if rounds < FOR_GOOD else "from here on"
        self.note(f"{self.option} auto: plain decoding {long}, since {why}{remark}")
        self._left = rounds - 1
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._is_paused, self._extent = True, 0

    def _go_on(self, candidate: Candidate[Size], remark: object) -> None:
        self._left, self._is_paused = 0, False
        if self._extent == 0:
            self._pause = PAUSE
        if abs(candidate.extent - self._extent) > max(1, self._extent // 2):
            gain = f"expected {candidate.gain:.2f}x plain"
            self.note(f"{self.option} auto: {candidate.text}, {gain}{remark}")
            self._extent = candidate.extent
