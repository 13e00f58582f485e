"""Limits on stage 1 (forwards, seconds), from what stage 2 alone cost on recent pages."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

RECENT = 8
"""Recent pages from which a cost is estimated."""

FIRST = 1 / 16
"""Forwards per drafted character that are assumed for the first page: four characters a token,
four tokens a forward."""

MIN_FORWARDS = 3
"""Below this many forwards (the crops' prefill and two rounds) stage 1 is not begun."""


@dataclass
class StageBudget:
    """Forwards and seconds that stage 1 may spend, all its batches together.

    A running forward is not interrupted, so `seconds` may be exceeded by the time of one.

    Attributes:
        forwards: through the target, prefills included.
        seconds: of the whole stage; `None` for any.
        slot_seconds: seconds per prompt token of a prefill, measured on the page's own; 0 for
            unknown.
        spent: forwards of the batches that are done.
        clock: by which the seconds count.
    """

    forwards: int
    seconds: float | None = None
    slot_seconds: float = 0.0
    spent: int = 0
    clock: Callable[[], float] = field(default=time.perf_counter, repr=False)
    _began: float | None = field(default=None, repr=False)

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


@dataclass(frozen=True)
class PageCost:
    """Holds a pass over a page (stage 2), stage 1 not counted.

    Attributes:
        letters: characters drafted for it.
        forwards: through the target, the prefill included.
        seconds: of decoding.
        slot_seconds: that a token of its prompt took, vision included; 0 for unknown.
    """

    letters: int
    forwards: int
    seconds: float
    slot_seconds: float = 0.0


class PageCosts:
    """Costs of recent pages, from which that of the next one is estimated."""

    def __init__(self) -> None:
        self._recent: deque[PageCost] = deque(maxlen=RECENT)

    def add(self, cost: PageCost) -> None:
        """Add a page's cost; one without a draft is ignored."""
        if cost.letters:
            self._recent.append(cost)

    @property
    def slot_seconds(self) -> float:
        """The median page's for a token of its prompt; 0 before any is known."""
        known = [cost.slot_seconds for cost in self._recent if cost.slot_seconds]
        return median(known) if known else 0.0

    def usual(self, letters: int) -> PageCost:
        """Returns the median page's cost a letter, for a page of so many."""
        if not self._recent:
            return PageCost(letters, round(FIRST * letters), 0.0)
        forwards = median(cost.forwards / cost.letters for cost in self._recent)
        seconds = median(cost.seconds / cost.letters for cost in self._recent)
        return PageCost(letters, round(forwards * letters), seconds * letters)

    def minimum(self, letters: int) -> PageCost:
        """The cheapest of the recent pages, a letter or in all, whichever is less."""
        if not self._recent:
            return PageCost(letters, 0, 0.0)
        shares = [(cost, min(letters / cost.letters, 1.0)) for cost in self._recent]
        forwards = min(cost.forwards * share for cost, share in shares)
        seconds = min(cost.seconds * share for cost, share in shares)
        return PageCost(letters, int(forwards), seconds)
