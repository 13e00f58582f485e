"""Several drafters, of which the first with something to say drafts a page."""

from __future__ import annotations

from dataclasses import replace

from ..page import BLANK, Page, PageDrafter
from ..regions import PageDraft


class FirstOf:
    """The first drafter that has something to say: `FirstOf(TextLayer(), OCR())` reads scans, and
    takes a PDF's own text where it is good. A page with nothing on it is nobody else's either.

    Args:
        drafters: one or more, the best or cheapest first.
    """

    def __init__(self, *drafters: PageDrafter) -> None:
        self.drafters = drafters
        self.name = "|".join(drafter.name for drafter in drafters)

    def __call__(self, page: Page) -> PageDraft:
        seconds, reasons = 0.0, list[str]()
        draft = PageDraft([], drafter=self.name, size=page.size)
        for drafter in self.drafters:
            draft = drafter(page)
            seconds += draft.seconds
            reasons += [f"{draft.drafter}: {draft.reason}"] if draft.reason else []
            if draft.texts or draft.reason == BLANK:
                break
        reason = draft.reason if draft.texts else "; ".join(reasons)
        return replace(draft, seconds=seconds, reason=reason)

    def close(self) -> None:
        """End the processes of those that have any."""
        for drafter in self.drafters:
            if (close := getattr(drafter, "close", None)) is not None:
                close()
