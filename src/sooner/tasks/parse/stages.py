"""Does reading every region on its own first pay? Measured page by page, not guessed.

Both ways give the same text at tolerance 1. Stage 1 costs the crops' prefill and some forwards, and
saves forwards of the page where drafts are rough.
"""

from __future__ import annotations

from dataclasses import dataclass, field

PAGE, BOTH = "page", "both"
AGAIN = 12
"""Pages after which the way that lost is tried once more: documents change."""
NEWER = 0.3
"""Weight of the newest page: one page says little, and old ones were of other drafts."""


@dataclass
class StageChoice:
    """Seconds a token of both ways, and which is next.

    Attributes:
        pace: seconds a token that drafts decide about (all of stage 1, and the page's decoding).
        pages: seen so far.
    """

    pace: dict[str, float] = field(default_factory=dict)
    pages: int = 0

    def pick(self) -> str:
        """The way to go on this page: each once, then the faster one."""
        for way in (PAGE, BOTH):
            if way not in self.pace:
                return way
        faster, slower = sorted((PAGE, BOTH), key=self.pace.__getitem__)
        return slower if self.pages % AGAIN == 0 else faster

    def add(self, way: str, tokens: int, seconds: float) -> None:
        """What a page took."""
        self.pages += 1
        if tokens < 1:
            return
        pace = seconds / tokens
        before = self.pace.get(way, pace)
        self.pace[way] = before + NEWER * (pace - before)
