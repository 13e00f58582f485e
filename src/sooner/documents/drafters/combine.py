"""Several drafters as one: their texts become branches of the same regions."""

from __future__ import annotations

from dataclasses import replace

from ..grouping import in_reading_order
from ..page import BLANK, Page, PageDrafter
from ..regions import PageDraft, Region, iou, overlap, resized

SAME = 0.5
"""Intersection over union from which two boxes are the same region; small ones, such as a page's
number, miss it where drafters differ by a pixel or two, so a common text counts as well."""


class AllOf:
    """Runs all drafters, whose texts become branches of the same regions.

    Boxes and labels are the first one's that has any. Regions are the same if their boxes are
    (`SAME`), or if these overlap and both have the same text. What no other drafter has is kept as
    a region of its own. Equal texts are kept once.

    Args:
        drafters: one or more.
    """

    def __init__(self, *drafters: PageDrafter) -> None:
        self.drafters = drafters
        self.name = "+".join(drafter.name for drafter in drafters)

    def __call__(self, page: Page) -> PageDraft:
        drafts = [drafter(page) for drafter in self.drafters]
        first, *rest = [draft for draft in drafts if draft.regions] or drafts
        regions = first.regions
        for other in rest:
            regions = _joined(regions, resized(other.regions, other.size, first.size))
        name = "+".join(draft.drafter for draft in drafts)
        reasons = "; ".join(f"{draft.drafter}: {draft.reason}" for draft in drafts if draft.reason)
        return PageDraft(regions, sum(draft.seconds for draft in drafts), name, first.size, reasons)


def _joined(mine: list[Region], extra: list[Region]) -> list[Region]:
    merged, rest = list(mine), list[Region]()
    for other in extra:
        shares = [_likeness(region, other) for region in mine]
        best = max(range(len(mine)), key=shares.__getitem__, default=0)
        if not shares or shares[best] < SAME:
            rest.append(other)
        else:
            drafts = dict.fromkeys([*merged[best].drafts, *other.drafts])
            merged[best] = replace(merged[best], drafts=list(drafts))
    return in_reading_order([*merged, *rest]) if rest else merged


def _likeness(a: Region, b: Region) -> float:
    """Returns how much of two regions is the same, from 0 to 1."""
    if a.bbox is None or b.bbox is None:
        return 0.0
    has_same_text = not {*a.drafts}.isdisjoint(b.drafts)
    return 1.0 if has_same_text and overlap(a.bbox, b.bbox) else iou(a.bbox, b.bbox)


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
