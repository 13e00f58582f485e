"""Decides by measurement, page by page, whether stage 1 (regions on their own) saves time.

Both give the same text at acceptance threshold 1. Stage 1 costs crops' prefill and forwards, and
saves forwards of the page where drafts are rough.
"""

from __future__ import annotations

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


class StageChoice:
    """Chooses for the next page whether stage 1 runs, and its share of the page's cost.

    A way's pace is the lower median of its last few pages' seconds a token: one page that was
    disturbed can't move it. All of stage 1 and the page's decoding count.

    Attributes:
        share: of what the page alone is expected to cost. It doubles with every page on which
            stage 1 paid, up to the whole, and falls back where it does not.
        ways: what pages took.
    """

    def __init__(self) -> None:
        self.share = TRIAL
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

    @property
    def faster(self) -> str:
        """The way that takes less time a token; the page alone before that is known."""
        return self.ways.best()

    def add(self, way: str, tokens: int, seconds: float) -> None:
        """What a page took; one of no tokens, or that never ended (0), counts as tried only."""
        was_known = self.ways.is_known()
        self.ways.add(way, 1, seconds / tokens if tokens else None)
        if was_known and self.faster == PAGE:
            self.share = TRIAL
        elif was_known and way == BOTH:
            self.share = min(2 * self.share, 1.0)
