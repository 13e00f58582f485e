"""A page's draft as its result, where no model was named to verify it; needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...documents import Page, PageDraft, to_markdown
from ...documents.drafters import BLANK, TextLayer
from ...documents.regions import Label, area
from ...documents.serialise import MARKDOWN, texts_of
from .result import DRAFT, DRAFTED, FAILED, NOT_VERIFIED, ParsedPage, parsed_regions

MIN_PICTURE = 0.05
"""Share of the page that a picture takes in which there may be text that matters."""


class DraftParser:
    """Stands where `PageParser` stands in a `ParseJob`, and loads nothing.

    A page's Markdown, regions and boxes are the drafter's own: status `DRAFT`, mode `draft`. A
    page of which the drafter can say nothing is `FAILED`, unless there is nothing on it.
    """

    def __call__(self, page: Page, draft: PageDraft | None = None) -> ParsedPage:
        page_draft = draft or PageDraft([], reason="no drafter")
        parsed = ParsedPage(
            page.source.name, page.number, size=page.size, drafter=page_draft.drafter,
            mode=DRAFTED, seconds={"drafter": page_draft.seconds},
        )  # fmt: skip
        if not page_draft.regions and page_draft.reason and not page_draft.reason.endswith(BLANK):
            return replace(parsed, status=FAILED, reason=page_draft.reason)
        regions = [
            replace(region, drafts=texts_of(region, MARKDOWN)[:1]) for region in page_draft.regions
        ]
        markdown = to_markdown(page_draft.regions, MARKDOWN)
        return replace(
            parsed, status=DRAFT, reason=NOT_VERIFIED, markdown=markdown, raw=markdown,
            regions=parsed_regions(regions, page.size), notes=list(_notes(page, page_draft)),
        )  # fmt: skip


def _notes(page: Page, draft: PageDraft) -> Iterator[str]:
    if draft.reason:
        yield f"drafter {draft.drafter}: {draft.reason}"
    minimum = MIN_PICTURE * page.width * page.height
    boxes = (region.bbox for region in draft.regions if region.label == Label.PICTURE)
    count = sum(box is not None and area(box) >= minimum for box in boxes)
    if draft.drafter == TextLayer.name and count:
        which = "a picture" if count == 1 else f"{count} pictures"
        yield f"text in {which}, if any, was not read; --drafter ocr reads the page as a picture"
