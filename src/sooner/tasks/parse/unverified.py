"""A page's draft as its result, where no model was named to verify it; needs no torch."""

from __future__ import annotations

import time
from dataclasses import replace

from ...documents import Page, PageDraft, to_markdown
from ...documents.drafters import BLANK
from ...documents.serialise import MARKDOWN, texts_of
from .forms import Ask
from .result import DRAFT, DRAFTED, FAILED, NOT_VERIFIED, Late, ParsedPage, parsed_region


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
        markdown = to_markdown(found.regions, MARKDOWN)
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
            notes=[f"drafter {found.drafter}: {found.reason}"] if found.reason else [],
        )
