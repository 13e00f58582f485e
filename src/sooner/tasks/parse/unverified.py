"""A page's draft as its result, where no model was named to verify it; needs no torch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from ...documents import Page, PageDraft, Region, to_markdown
from ...documents.drafters import BLANK, TextLayer
from ...documents.escaping import PROSE, escaped
from ...documents.regions import area
from ...documents.serialise import MARKDOWN, texts_of
from .forms import Ask
from .result import DRAFT, DRAFTED, FAILED, NOT_VERIFIED, Late, ParsedPage, parsed_region

LEAST_PICTURE = 0.05
"""Share of the page that a picture takes in which there may be text that matters."""


class DraftParser:
    """Stands where `PageParser` stands in a `ParseJob`, and loads nothing.

    A page's Markdown, regions and boxes are the drafter's own: status `DRAFT`, mode `draft`. A
    page of which the drafter can say nothing is `FAILED`, unless there is nothing on it.
    """

    def __init__(self) -> None:
        self.ask = Ask("")  # no model, no prompt; the format is Markdown

    def __call__(self, page: Page, draft: PageDraft | Late | None = None) -> ParsedPage:
        began = time.perf_counter()
        found = (draft() if callable(draft) else draft) or PageDraft([], reason="no drafter")
        waited = time.perf_counter() - began
        told = ParsedPage(page.source.name, page.number, size=page.size, drafter=found.drafter)
        told = replace(told, mode=DRAFTED, seconds={"wait": waited})
        if not found.regions and found.reason and not found.reason.endswith(BLANK):
            return replace(told, status=FAILED, reason=found.reason)
        markdown = to_markdown([_escaped(region) for region in found.regions], MARKDOWN)
        return replace(
            told,
            status=DRAFT,
            reason=NOT_VERIFIED,
            markdown=markdown,
            raw=markdown,
            regions=[
                parsed_region(
                    replace(region, drafts=texts_of(region, MARKDOWN)[:1]), order, page.size, None
                )
                for order, region in enumerate(found.regions)
            ],
            notes=list(_notes(page, found)),
        )


def _notes(page: Page, draft: PageDraft) -> Iterator[str]:
    if draft.reason:
        yield f"drafter {draft.drafter}: {draft.reason}"
    if page.text is None or draft.drafter != TextLayer.name:
        return
    least = LEAST_PICTURE * page.width * page.height
    count = sum(area(box) >= least for box in page.text.illustrations)
    if count:
        which = "a picture" if count == 1 else f"{count} pictures"
        yield f"text in {which}, if any, was not read; --drafter ocr reads the page as a picture"


def _escaped(region: Region) -> Region:
    """A region whose text is no Markdown, as Markdown; a model writes its own."""
    texts = texts_of(region, MARKDOWN) if region.label in PROSE else []
    return replace(region, drafts=[escaped(texts[0])]) if texts else region
