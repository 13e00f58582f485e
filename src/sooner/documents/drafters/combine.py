"""Several drafters as one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..merge import merge
from ..page import Page
from ..regions import PageDraft
from .base import BLANK, Drafter


class AllOf:
    """All drafters, whose texts become branches of the same regions; the first one's boxes lead.

    Args:
        drafters: one or more.
    """

    def __init__(self, *drafters: Drafter) -> None:
        self.drafters = drafters
        self.name = "+".join(drafter.name for drafter in drafters)

    def __call__(self, page: Page) -> PageDraft:
        return merge([drafter(page) for drafter in self.drafters])


@dataclass(frozen=True)
class _Tried:
    seconds: float = 0.0
    reasons: tuple[str, ...] = ()

    def and_then(self, draft: PageDraft) -> _Tried:
        reason = (f"{draft.drafter}: {draft.reason}",) if draft.reason else ()
        return _Tried(self.seconds + draft.seconds, self.reasons + reason)


class FirstOf:
    """The first drafter that has something to say: `FirstOf(TextLayer(), OCR())` reads scans, and
    takes a PDF's own text where it is good. A page with nothing on it is nobody else's either.

    Args:
        drafters: one or more, the best or cheapest first.
    """

    def __init__(self, *drafters: Drafter) -> None:
        self.drafters = drafters
        self.name = "|".join(drafter.name for drafter in drafters)

    def __call__(self, page: Page) -> PageDraft:
        tried = _Tried()
        draft = PageDraft([], drafter=self.name, size=page.size)
        for drafter in self.drafters:
            draft = drafter(page)
            tried = tried.and_then(draft)
            if draft.texts or draft.reason == BLANK:
                break
        reason = "" if draft.texts else "; ".join(tried.reasons)
        return replace(draft, seconds=tried.seconds, reason=reason)

    def close(self) -> None:
        """End the processes of those that have any."""
        for drafter in self.drafters:
            if (close := getattr(drafter, "close", None)) is not None:
                close()
