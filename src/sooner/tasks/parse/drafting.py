"""A page's draft: waits for it, verifies its regions (stage 1), makes its token ids (stage 2)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ...documents import Page, PageDraft
from .budget import StageBudget
from .contexts import Ids, Piece, page_drafts, pieces_of, with_region_texts
from .forms import Ask
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
        ask: Ask,
        regions: RegionStage | None,
        tokenizer: Any,
        eos: Ids,
    ) -> None:
        self.page, self.ask, self.regions = page, ask, regions
        self.tokenizer, self.eos = tokenizer, eos
        self.verified, self.pieces = Verified([]), list[Piece]()
        self.notes: list[str] = []
        self.waited = 0.0
        self.is_empty = True
        self._given = draft
        self._draft: PageDraft | None = None

    @property
    def is_none(self) -> bool:
        """There is no drafter."""
        return self._given is None

    @property
    def draft(self) -> PageDraft:
        """What was drafted; the first call waits for it."""
        if self._draft is None:
            given, began = self._given, time.perf_counter()
            self._draft = (given() if callable(given) else given) or NO_DRAFT
            self.waited = time.perf_counter() - began
            if self._draft.reason:
                self.notes.append(_blamed(self._draft))
        return self._draft

    @property
    def letters(self) -> int:
        """How many were drafted, the best draft of each region; the first call waits for them."""
        return sum(len(region.drafts[0]) for region in self.draft.regions if region.drafts)

    def first_stage(self, cells: Cells | None, budget: StageBudget | None = None) -> None:
        """Let the target read regions on their own.

        Args:
            cells: its raster over the page.
            budget: what that may cost; `None` for all that it takes.
        """
        is_worth_it = budget is None or budget.is_enough
        if self.regions is None or not is_worth_it or not self.draft.regions:
            return
        self.pieces = pieces_of(self.draft, self.ask.region_form)
        self.verified = self.regions(self.page, self.pieces, cells, budget)
        if self.verified.reason:
            self.notes.append(f"stage 1 was left out: {self.verified.reason}")

    def groups(
        self, seen: tuple[int, int] | None, cells: Cells | None, budget: StageBudget | None = None
    ) -> list[list[Ids]]:
        """Token ids for stage 2, alternatives of a region together: what stage 1 read, where it
        read anything, and what was drafted.

        Args:
            seen: width and height in which the target says boxes.
            cells, budget: as for `first_stage`.
        """
        self.first_stage(cells, budget)
        form, heard = self.ask.form, self.verified.heard
        whole = with_region_texts(pieces_of(self.draft, form, seen), heard, form, self.draft, seen)
        found = page_drafts(self.tokenizer, whole, form, self.eos) if whole else []
        self.is_empty = not found
        return found

    def text(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))


def _blamed(draft: PageDraft) -> str:
    """What a drafter's reason means for a page."""
    how = "" if draft.regions else "; decoded plainly"
    return f"drafter {draft.drafter or 'none'}: {draft.reason}{how}"
