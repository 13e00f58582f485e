"""Decides by measurement, page by page, whether stage 1 (regions on their own) saves time.

Both give the same text at acceptance threshold 1. Stage 1 costs crops' prefill and forwards, and
saves forwards of the page where drafts are rough.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from ...methods.sizing import Recent

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
        counts: pages of each way.
    """

    def __init__(self) -> None:
        self.share = TRIAL
        self.counts: Counter[str] = Counter()
        self._paces: dict[str, Recent] = defaultdict(Recent)
        self._wait, self._since = AGAIN, 0  # until the way that lost is tried, and pages since

    def pick(self) -> str:
        """The way to go on this page: each a few times, then the faster one."""
        for way in (PAGE, BOTH):
            if self.counts[way] < COLD + ENOUGH:
                return way
        return self._slower if self._since >= self._wait else self.faster

    @property
    def faster(self) -> str:
        """The way that takes less time a token; the page alone before that is known."""
        alone, both = (self._paces[way].typical for way in (PAGE, BOTH))
        if alone is None or both is None:
            return PAGE
        return BOTH if both < (1 - GAIN) * alone else PAGE

    @property
    def _slower(self) -> str:
        return PAGE if self.faster == BOTH else BOTH

    @property
    def _is_known(self) -> bool:
        """Whether each way has been tried often enough."""
        return all(self.counts[way] >= COLD + ENOUGH for way in (PAGE, BOTH))

    def add(self, way: str, tokens: int, seconds: float) -> None:
        """What a page took; one of no tokens, or that never ended (0), counts as tried only."""
        before, was_known = self.faster, self._is_known
        self.counts[way] += 1
        if tokens and self.counts[way] > COLD:
            self._paces[way].add(seconds / tokens)
        if not was_known:
            return
        if way == before:
            self._since += 1
        else:
            self._since = 0
            self._wait = min(2 * self._wait, RARELY)
        if self.faster != before:
            self._wait = AGAIN
        if self.faster == PAGE:
            self.share = TRIAL
        elif way == BOTH:
            self.share = min(2 * self.share, 1.0)
