"""Stage 1: regions of a page on their own crops, several of them in a ragged batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...documents import Page, Region
from ...documents.page import Picture
from ...errors import MemoryRanOutError, SoonerError, is_out_of_memory
from ...methods import HSD
from ...methods.aligned import Experience
from ...stats.run import Stats
from .budget import StageBudget
from .contexts import Piece, region_drafts
from .crops import Crop, Part, affordable, apart, batches, together, unsure
from .decoding import DecodedRow, decode_rows, eos_ids
from .effort import release
from .model_inputs import Cells, picture_inputs, room_for
from .result import BUDGET
from .settings import ParseSettings

SIDE = 28
"""Pixels of a visual token's side, where the processor does not say."""

PREFILL = 0.5
"""Share of the seconds of a budget that prefills may take; the rest is for decoding."""


@dataclass
class Verified:
    """Results of stage 1.

    Attributes:
        said: for each piece that was read on a crop of its own; `None` for the others.
        heard: texts by `Piece.place`, of crops that came to their end or as far as the budget went.
        runs: figures of the batches.
        seconds: of everything; `processor` that of making inputs.
        reason: why something was left out, in one line.
    """

    said: list[DecodedRow | None]
    heard: dict[int, str] = field(default_factory=dict)
    runs: list[Stats] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: {"regions": 0.0, "processor": 0.0})
    reason: str = ""


class RegionStage:
    """Verifies the drafts of each region on its crop (section 3.1, eq. 2).

    Args:
        target: the loaded model, see `sooner.tasks.loading.Loaded`.
        settings: how.
        prompt: what the target is asked about a crop.
        experience: measured costs and acceptance of stage 1, kept from page to page.
    """

    def __init__(
        self, target: Any, settings: ParseSettings, prompt: str, experience: Experience
    ) -> None:
        self.target, self.settings, self.prompt = target, settings, prompt
        self.experience = experience
        self.eos = eos_ids(target.model)
        self.asked = len(target.tokenizer(prompt, add_special_tokens=False)["input_ids"])

    def __call__(
        self,
        page: Page,
        pieces: Sequence[Piece],
        cells: Cells | None = None,
        budget: StageBudget | None = None,
    ) -> Verified:
        """What the target reads in each piece's region; pieces without a box are left out.

        Args:
            cells: the target's raster over the page, along which regions are cut out of it as the
                target sees it; without, they get a margin.
            budget: that all batches together may spend. Only regions that the drafter is unsure of
                are looked at then, tiny neighbours on one crop. Without, what the target reads is
                the result: every region, each on its own.
        """
        began = time.perf_counter()
        done = Verified([None] * len(pieces))
        if budget is None:
            parts = apart(pieces, page)
        else:
            budget.begin()
            parts = together(unsure(pieces, self.settings.sure), page)
        crops = self._crops(page, parts, cells)
        if budget is not None and budget.seconds is not None:
            crops = affordable(crops, PREFILL * budget.seconds, budget.slot_seconds)
        heard: dict[int, DecodedRow] = {}
        try:
            for batch in batches(crops, self.settings.region_rows):
                if budget is not None and budget.is_spent():
                    break
                self._verify(batch, done, budget, heard)
        except SoonerError as error:
            done.reason = str(error)
        done.said = [heard.get(piece.place) for piece in pieces]
        done.seconds["regions"] = time.perf_counter() - began
        return done

    def _crops(self, page: Page, parts: Sequence[Part], cells: Cells | None) -> list[Crop]:
        seen = page.picture if cells is None else cells.picture(page)
        side = SIDE if cells is None else cells.side
        crops = []
        for part in parts:
            picture = self._cut(page, part.region, cells, seen)
            slots = self.asked + picture.shape[0] * picture.shape[1] // side**2
            drafts = region_drafts(self.target.tokenizer, part.piece, self.eos)
            crops.append(Crop(part, picture, drafts, slots))
        return crops

    def _cut(self, page: Page, region: Region, cells: Cells | None, seen: Picture) -> Picture:
        assert region.bbox is not None
        if cells is None:
            return page.crop(region.bbox, self.settings.margin)
        return cells.crop(seen, region.bbox, page.size)

    def _verify(
        self,
        crops: Sequence[Crop],
        done: Verified,
        budget: StageBudget | None,
        heard: dict[int, DecodedRow],
    ) -> None:
        """Read a batch; where memory runs out, half of its rows at a time.

        Raises:
            MemoryRanOutError: one row is too many.
        """
        try:
            self._read(crops, done, budget, heard)
            return
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if len(crops) == 1:
                raise MemoryRanOutError(f"a single region: {error}") from error
        release()  # out here nothing holds on to what the failed run had allocated
        half = (len(crops) + 1) // 2
        self._verify(crops[:half], done, budget, heard)
        self._verify(crops[half:], done, budget, heard)

    def _read(
        self,
        crops: Sequence[Crop],
        done: Verified,
        budget: StageBudget | None,
        heard: dict[int, DecodedRow],
    ) -> None:
        began, settings = time.perf_counter(), self.settings
        inputs = picture_inputs(
            self.target.processor, [crop.picture for crop in crops], self.prompt, self.target.model
        )
        done.seconds["processor"] += time.perf_counter() - began
        is_result = budget is None
        limits = [crop.limit(is_result) for crop in crops]
        room = room_for(self.target.model, inputs, min(max(limits), settings.max_new_tokens))
        method = HSD(
            [[crop.drafts] for crop in crops],
            **settings.verification,
            experience=self.experience if settings.acceptance_threshold == 1 else None,
        )
        said, stats = decode_rows(
            self.target.model, inputs, method,
            limits=[min(limit, room) for limit in limits],
            repetition=[crop.repetition(settings.repetition, is_result) for crop in crops],
            eos=set(self.eos), seconds=settings.timeout, budget=budget,
        )  # fmt: skip
        done.runs.append(stats)
        if budget is not None:
            budget.spent += stats.nfe
        for crop, one in zip(crops, said, strict=True):
            self._keep(crop, one, done, heard)

    def _keep(
        self, crop: Crop, one: DecodedRow, done: Verified, heard: dict[int, DecodedRow]
    ) -> None:
        pieces = crop.part.pieces
        if len(pieces) == 1:
            heard[pieces[0].place] = one
        if one.truncated in (None, BUDGET):
            text = str(self.target.tokenizer.decode(one.tokens, skip_special_tokens=True))
            texts = crop.part.split(text)
            done.heard.update({place: text for place, text in texts.items() if text})
