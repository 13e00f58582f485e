"""Decides by measurement whether stage 1 (regions on their own) runs, and what it may cost.

With it and without, the text is the same at acceptance threshold 1. Stage 1 costs crops' prefill
and forwards, and saves forwards of the page where drafts are rough.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from ...methods.controller import Quickest

PAGE, BOTH = "page", "both"
COLD = 1
"""Untimed warm-up pages of each variant."""
ENOUGH = 2
"""Timed pages of each variant before they are compared: one time may be an outlier."""
GAIN = 0.03
"""Share by which stage 1 has to make pages faster to be kept."""
AGAIN, RARELY = 12, 96
"""Pages after which the way that lost is tried once more, since documents change: at first, and at
most. The wait doubles each time that it loses again."""
TRIAL = 0.1
"""Share of what a page alone costs that stage 1 may spend before it has been seen to pay."""

RECENT = 8
"""Recent pages from which a cost is estimated."""
FIRST = 1 / 16
"""Forwards per drafted character of a page alone, where nothing is measured: four characters a
token, four tokens a forward."""
MIN_FORWARDS = 3
"""Below this many forwards (the crops' prefill and two rounds) stage 1 is not begun."""


@dataclass
class StageBudget:
    """Forwards and seconds that stage 1 may spend, all its batches together.

    A running forward is not interrupted, so `seconds` may be exceeded by the time of one.

    Attributes:
        forwards: through the target, prefills included.
        seconds: of the whole stage; `None` for any.
        slot_seconds: seconds per prompt token of a prefill; 0 for unknown.
        spent: forwards of the batches that are done.
        clock: by which the seconds count.
    """

    forwards: int
    seconds: float | None = None
    slot_seconds: float = 0.0
    spent: int = 0
    clock: Callable[[], float] = field(default=time.perf_counter, repr=False)
    _began: float | None = field(default=None, repr=False)

    @classmethod
    def fixed(cls, letters: int) -> StageBudget:
        """Returns the forwards of a page of so many drafted characters: neither the clock nor
        earlier pages have an influence, on which the text would depend below threshold 1."""
        return cls(max(round(FIRST * letters), MIN_FORWARDS))

    @property
    def is_enough(self) -> bool:
        """Whether stage 1 can do anything useful within it."""
        return self.forwards >= MIN_FORWARDS

    def begin(self) -> None:
        """Start the clock."""
        self._began = self.clock()

    def is_spent(self, forwards: int = 0) -> bool:
        """Returns whether nothing is left.

        Args:
            forwards: of the batch that is under way.
        """
        if self.spent + forwards >= self.forwards:
            return True
        if self.seconds is None or self._began is None:
            return False
        return self.clock() - self._began >= self.seconds


class PageCost(NamedTuple):
    """Says what a pass over a page (stage 2) cost, stage 1 not counted.

    Attributes:
        letters: characters drafted for it.
        forwards: through the target, the prefill included.
        seconds: of decoding.
        slot_seconds: that a token of its prompt took, vision included.
    """

    letters: int
    forwards: int
    seconds: float
    slot_seconds: float = 0.0


class StageChoice:
    """Chooses for the next page whether stage 1 runs, and what it may spend.

    A way's pace is the lower median of its last few pages' seconds a token: one page that was
    disturbed can't move it. All of stage 1 and the page's decoding count.

    Attributes:
        share: of what the page alone is expected to cost. It doubles with every page on which
            stage 1 paid, up to the whole, and falls back where it does not.
        ways: what pages took.
        recent: what passes over pages cost.
    """

    def __init__(self) -> None:
        self.share = TRIAL
        self.recent: deque[PageCost] = deque(maxlen=RECENT)
        self.ways = Quickest(
            (PAGE, BOTH),
            trials=ENOUGH,
            cold=COLD,
            margin=1 / (1 - GAIN),
            again=AGAIN,
            rarely=RARELY,
        )

    def pick(self) -> str:
        """Returns the way to go on this page: each a few times, then the faster one."""
        return self.ways.pick()

    def add(self, way: str, tokens: int, seconds: float, cost: PageCost | None = None) -> None:
        """What a page took; one of no tokens, or that never ended (0), counts as tried only."""
        was_known = self.ways.is_known()
        self.ways.add(way, 1, seconds / tokens if tokens else None)
        if was_known and self.ways.best() == PAGE:
            self.share = TRIAL
        elif was_known and way == BOTH:
            self.share = min(2 * self.share, 1.0)
        if cost is not None and cost.letters:
            self.recent.append(cost)

    def budget(self, letters: int, slots: int, clock: Callable[[], float]) -> StageBudget:
        """Returns what stage 1 may spend: a share of what the cheapest of recent pages cost, a
        letter or in all, whichever is less; nothing before any is known.

        Args:
            letters: drafted for the page.
            slots: tokens of its prompt.
        """
        if not self.recent:
            return StageBudget(0, 0.0, clock=clock)
        parts = [(cost, min(letters / cost.letters, 1.0)) for cost in self.recent]
        forwards = min(cost.forwards * part for cost, part in parts)
        seconds = min(cost.seconds * part for cost, part in parts)
        slot = median(cost.slot_seconds for cost in self.recent)
        seconds = self.share * (slot * slots + seconds)
        return StageBudget(int(self.share * int(forwards)), seconds, slot, clock=clock)
