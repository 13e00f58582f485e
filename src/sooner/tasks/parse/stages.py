"""Decides by measurement whether stage 1 (regions on their own) runs, and what it may cost.

With it and without, the text is the same at acceptance threshold 1. Stage 1 costs crops' prefill
and forwards, and saves forwards of the page where drafts are rough.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
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
AGAIN = 12
"""Pages after which the way that lost is tried once more, since documents change."""
TRIAL = 0.1
"""Share of what a page alone costs that stage 1 may spend before it has been seen to pay."""
PREFILL = 0.5
"""Share of that which prefills of crops may take; the rest is for decoding."""

RECENT = 8
"""Recent pages from which a cost is estimated."""
FIRST = 1 / 16
"""Forwards per drafted character of a page alone, where nothing is measured: four characters a
token, four tokens a forward."""
MIN_FORWARDS = 3
"""Below this many forwards (the crops' prefill and two rounds) stage 1 is not begun."""


@dataclass
class StageBudget:
    """What stage 1 may spend, all its batches together.

    Attributes:
        forwards: through the target, prefills included.
        slots: prompt tokens of all crops; `None` for any.
        spent: forwards of the batches that are done.
    """

    forwards: int
    slots: float | None = None
    spent: int = 0

    @classmethod
    def fixed(cls, letters: int) -> StageBudget:
        """Returns the forwards of a page of so many drafted characters: neither the clock nor
        earlier pages have an influence, on which the text would depend below threshold 1."""
        return cls(max(round(FIRST * letters), MIN_FORWARDS))

    @property
    def is_enough(self) -> bool:
        """Whether stage 1 can do anything useful within it."""
        return self.forwards >= MIN_FORWARDS

    def is_spent(self, forwards: int = 0) -> bool:
        """Returns whether nothing is left behind so many forwards of the batch under way."""
        return self.spent + forwards >= self.forwards


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
    seconds: float = 0.0
    slot_seconds: float = 0.0


class StageChoice:
    """Chooses for the next page whether stage 1 runs, and what it may spend.

    A way's pace is the lower median of its last few pages' seconds a token: one page that was
    disturbed can't move it. All of stage 1 and the page's decoding count.

    Attributes:
        ways: what pages took.
        recent: what passes over pages cost.
    """

    def __init__(self) -> None:
        self.recent: deque[PageCost] = deque(maxlen=RECENT)
        self.ways = Quickest(
            (PAGE, BOTH), trials=ENOUGH, cold=COLD, margin=1 / (1 - GAIN), again=AGAIN,
        )  # fmt: skip

    @property
    def share(self) -> float:
        """Returns how much of a page's expected cost it may be: all of it where it pays."""
        return 1.0 if self.ways.is_known() and self.ways.best() == BOTH else TRIAL

    def add(self, way: str, tokens: int, seconds: float, cost: PageCost | None = None) -> None:
        """What a page took; one of no tokens, or that never ended (0), counts as tried only."""
        self.ways.add(way, 1, seconds / tokens if tokens else None)
        if cost is not None and cost.letters:
            self.recent.append(cost)

    def budget(self, letters: int, slots: int) -> StageBudget:
        """Returns what stage 1 may spend: a share of what the cheapest of recent pages cost, a
        letter or in all, whichever is less; nothing before any is known.

        Args:
            letters: drafted for the page.
            slots: tokens of its prompt.
        """
        if not self.recent:
            return StageBudget(0)
        parts = [(cost, min(letters / cost.letters, 1.0)) for cost in self.recent]
        forwards = int(self.share * int(min(cost.forwards * part for cost, part in parts)))
        seconds = min(cost.seconds * part for cost, part in parts)
        slot = median(cost.slot_seconds for cost in self.recent)
        whole = slots + seconds / slot if slot else None
        return StageBudget(forwards, whole and self.share * PREFILL * whole)
