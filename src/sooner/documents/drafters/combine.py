"""Several drafters as one: their texts become branches of the same regions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...errors import SoonerError
from ..languages import is_read_by_default
from ..order import in_reading_order
from ..page import BLANK, Page, PageDrafter
from ..regions import PICTURE, PageDraft, Region, area, iou, resized

MIN_PICTURE = 0.05
"""Share of the page that a picture takes in which there may be text that matters."""

SAME = 0.5
"""Intersection over union from which two boxes are the same region."""


def merge(drafts: Sequence[PageDraft]) -> PageDraft:
    """Returns one draft of a page from several; boxes and labels are the first one's.

    Regions are the same if their boxes are (`SAME`). What no other drafter has is kept as a region
    of its own. Equal texts are kept once. Seconds add up.

    Raises:
        SoonerError: no draft at all.
    """
    if not drafts:
        raise SoonerError("merge needs one draft or more")
    useful = [draft for draft in drafts if draft.regions]
    reasons = "; ".join(f"{draft.drafter}: {draft.reason}" for draft in drafts if draft.reason)
    first = useful[0] if useful else drafts[0]
    regions = list(first.regions)
    for other in useful[1:]:
        regions = _joined(regions, resized(other.regions, other.size, first.size))
    return PageDraft(
        regions=regions,
        seconds=sum(draft.seconds for draft in drafts),
        drafter="+".join(draft.drafter for draft in drafts),
        size=first.size,
        reason=reasons,
    )


def _joined(mine: list[Region], extra: list[Region]) -> list[Region]:
    merged, rest = list(mine), list[Region]()
    for other in extra:
        shares = [iou(a.bbox, other.bbox) if a.bbox and other.bbox else 0.0 for a in mine]
        best = max(range(len(mine)), key=shares.__getitem__)
        if shares[best] < SAME:
            rest.append(other)
        else:
            drafts = dict.fromkeys([*merged[best].drafts, *other.drafts])
            merged[best] = replace(merged[best], drafts=list(drafts))
    return in_reading_order([*merged, *rest]) if rest else merged


class AllOf:
    """Runs all drafters, whose texts become branches of the same regions; the first one's boxes
    lead.

    Args:
        drafters: one or more.
    """

    def __init__(self, *drafters: PageDrafter) -> None:
        self.drafters = drafters
        self.name = "+".join(drafter.name for drafter in drafters)

    def __call__(self, page: Page) -> PageDraft:
        return merge([drafter(page) for drafter in self.drafters])


class FirstOf:
    """The first drafter that has something to say: `FirstOf(TextLayer(), OCR())` reads scans, and
    takes a PDF's own text where it is good. A page with nothing on it is nobody else's either.

    Args:
        drafters: one or more, the best or cheapest first.
        pictures: the last one reads large pictures of a page that another one drafted.
        any_script: it was told the language; otherwise it reads pictures only on pages whose text
            is in a script that OCR reads by default.
    """

    def __init__(
        self, *drafters: PageDrafter, pictures: bool = False, any_script: bool = False
    ) -> None:
        self.drafters, self.pictures, self.any_script = drafters, pictures, any_script
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
        draft = replace(draft, seconds=seconds, reason=reason)
        last = self.drafters[-1]
        reads = self.pictures and draft.drafter != last.name
        if reads and (self.any_script or is_read_by_default(draft.texts)):
            return with_read_pictures(page, draft, last)
        return draft

    def close(self) -> None:
        """End the processes of those that have any."""
        for drafter in self.drafters:
            if (close := getattr(drafter, "close", None)) is not None:
                close()


def large_pictures(page: Page, draft: PageDraft) -> list[int]:
    """Returns places of a draft's regions that are pictures without a text, and large enough for
    some.
    """
    minimum = MIN_PICTURE * page.width * page.height
    return [
        place
        for place, region in enumerate(draft.regions)
        if region.label == PICTURE and region.bbox and not region.drafts
        if area(region.bbox) >= minimum
    ]


def with_read_pictures(page: Page, draft: PageDraft, drafter: PageDrafter) -> PageDraft:
    """Returns a draft with what another drafter reads in its large pictures as their texts."""
    regions, seconds, reasons = list(draft.regions), draft.seconds, [draft.reason]
    places = large_pictures(page, draft)
    for place in places:
        picture = np.ascontiguousarray(page.crop(regions[place].bbox or ()))
        read = drafter(replace(page, picture=picture, text=None))
        seconds += read.seconds
        text = "\n".join(read.texts)
        if text:
            regions[place] = replace(regions[place], drafts=[text])
        elif read.reason and read.reason != BLANK:
            reasons.append(f"a picture was not read: {read.reason}")
    name = f"{draft.drafter}+{drafter.name}" if places else draft.drafter
    reason = "; ".join(filter(None, reasons))
    return replace(draft, regions=regions, seconds=seconds, drafter=name, reason=reason)
