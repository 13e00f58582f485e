"""A page's draft: waits for it, verifies its regions (stage 1), makes its token ids (stage 2)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ...documents import Page, PageDraft
from .answers import region_markdown
from .budget import StageBudget
from .contexts import (
    Ids,
    Piece,
    decoded,
    page_drafts,
    pieces_of,
    region_pieces,
    with_region_texts,
)
from .decoder import Drafts, PageDecoder
from .forms import FamilyPrompts
from .model_inputs import Cells
from .regions import RegionStage, Verified
from .result import Late

NO_DRAFT = PageDraft([])


class Drafting:
    """One page's draft, made ready for the decoder; each step is computed once, on first use.

    Args:
        page: its picture.
        draft: of the page; or a function that waits for it.
        ask: the target's prompts and output formats.
        regions: stage 1; `None` leaves it out.
        tokenizer: the target's.
        eos: ids that end a text.
        decoder: of the page.

    Attributes:
        verified: what stage 1 made of `pieces`.
        notes: what went wrong.
        waited: seconds until the draft was there.
        is_empty: nothing was drafted that the target could confirm.
    """

    def __init__(
        self,
        page: Page,
        draft: PageDraft | Late | None,
        ask: FamilyPrompts,
        regions: RegionStage | None,
        tokenizer: Any,
        eos: Ids,
        decoder: PageDecoder,
    ) -> None:
        self.decoder = decoder
        self.page, self.ask, self.regions = page, ask, regions
        self.tokenizer, self.eos = tokenizer, eos
        self.verified, self.pieces = Verified(), list[Piece]()
        self.notes: list[str] = []
        self.waited = 0.0
        self.is_empty = True
        self._drafted = draft
        self._draft: PageDraft | None = None

    @property
    def is_none(self) -> bool:
        """There is no drafter."""
        return self._drafted is None

    @property
    def draft(self) -> PageDraft:
        """What was drafted, once it was waited for."""
        assert self._draft is not None
        return self._draft

    @property
    def drafter(self) -> str:
        """By whose name `HSD` keeps what it learns of the page's drafts; empty for nobody's."""
        name = "" if self._draft is None else self._draft.drafter
        # Where stage 1 read something, most drafts are the target's own.
        return f"{name}, read on crops" if name and self.verified.runs else name

    @property
    def letters(self) -> int:
        """How many were drafted, the best draft of each region."""
        return sum(len(region.drafts[0]) for region in self.draft.regions if region.drafts)

    async def wait(self) -> None:
        """Wait for the draft, once."""
        if self._draft is not None:
            return
        draft, began = self._drafted, time.perf_counter()
        result = await self.decoder.wait(draft) if callable(draft) else draft
        self._draft = result or NO_DRAFT
        self.waited = time.perf_counter() - began
        if self._draft.reason:
            self.notes.append(_blamed(self._draft))

    async def first_stage(self, cells: Cells | None, budget: StageBudget | None = None) -> None:
        """Let the target read regions on their own.

        Args:
            cells: its raster over the page.
            budget: what that may cost; `None` for all that it takes.
        """
        await self.wait()
        is_worth_it = budget is None or budget.is_enough
        if self.regions is None or not is_worth_it or not self.draft.regions:
            return
        self.pieces = region_pieces(self.draft, self.ask)
        self.verified = await self.regions(self.page, self.pieces, self.decoder, cells, budget)
        if self.verified.reason:
            self.notes.append(f"stage 1 was left out: {self.verified.reason}")

    async def groups(
        self, seen: tuple[int, int] | None, cells: Cells | None, budget: StageBudget | None = None
    ) -> Drafts:
        """Returns token ids for stage 2, alternatives of a region together: what stage 1 read,
        where it read anything, and what was drafted.

        Args:
            seen: width and height in which the target says boxes.
            cells, budget: as for `first_stage`.
        """
        await self.first_stage(cells, budget)
        form, texts = self.ask.form, self.verified.texts
        pieces = pieces_of(self.draft, form, seen)
        whole = with_region_texts(pieces, texts, self.ask, self.draft, seen)
        drafts = page_drafts(self.tokenizer, whole, form, self.eos) if whole else []
        self.is_empty = not drafts
        return drafts

    def text(self, tokens: Sequence[int]) -> str:
        """Returns what the target wrote about the page."""
        return decoded(self.tokenizer, tokens, self.ask.form, self.eos)

    def region_text(self, piece: Piece, tokens: Sequence[int] | None) -> str:
        """Returns what it wrote about a region's crop, as Markdown; without, what was drafted of
        it.
        """
        form = self.ask.about(piece.region).form
        text = piece.texts[0]
        if tokens is not None:
            text = decoded(self.tokenizer, tokens, form, self.eos)
        return region_markdown(text, form, piece.region)


def _blamed(draft: PageDraft) -> str:
    """Returns what a drafter's reason means for a page."""
    how = "" if draft.regions else "; decoded plainly"
    return f"drafter {draft.drafter or 'none'}: {draft.reason}{how}"
