"""Stage 1: regions of a page on their own crops, several of them in a ragged batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...documents import Page, Region
from ...documents.page import Picture
from ...engine.stats.run import Stats
from ...errors import MemoryRanOutError, SoonerError, is_out_of_memory
from ...methods.aligned import Experience
from .budget import StageBudget
from .contexts import Piece, decoded, region_drafts
from .crops import Crop, Part, affordable, apart, batches, together, unsure
from .decoder import DecodeRequest, PageDecoder
from .decoding import DecodedRow, eos_ids
from .effort import release
from .forms import FamilyPrompts
from .model_inputs import Cells, picture_inputs, room_for
from .result import BUDGET
from .settings import ParseSettings

SIDE = 28
"""Pixels of a visual token's side, where the processor does not say."""

PREFILL = 0.5
"""Share of the seconds of a budget that prefills may take; the rest is for decoding."""


@dataclass
class Verified:
    """Holds results of stage 1.

    Attributes:
        output: of pieces that were read on crops of their own, by `Piece.place`.
        texts: texts by `Piece.place`, of crops that came to their end or as far as the budget went.
        runs: figures of the batches.
        seconds: of everything; `processor` that of making inputs.
        reason: why something was left out, in one line.
    """

    output: dict[int, DecodedRow] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    runs: list[Stats] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: {"regions": 0.0, "processor": 0.0})
    reason: str = ""


class RegionStage:
    """Verifies the drafts of each region on its crop (section 3.1, eq. 2).

    Args:
        target: the loaded model, see `sooner.tasks.loading.Loaded`.
        settings: how.
        ask: what the target is asked about crops.
        experience: measured costs and acceptance of stage 1, kept from page to page.
    """

    def __init__(
        self, target: Any, settings: ParseSettings, ask: FamilyPrompts, experience: Experience
    ) -> None:
        self.target, self.settings, self.ask = target, settings, ask
        self.experience = experience
        self.eos = eos_ids(target.model)
        self._lengths: dict[str, int] = {}

    async def __call__(
        self,
        page: Page,
        pieces: Sequence[Piece],
        decoder: PageDecoder,
        cells: Cells | None = None,
        budget: StageBudget | None = None,
    ) -> Verified:
        """Returns what the target reads in each piece's region; pieces without a box are left out.

        Args:
            decoder: of the page, by whose clock the stage's seconds count.
            cells: the target's raster over the page, along which regions are cut out of it as the
                target sees it; without, they get a margin.
            budget: that all batches together may spend. Only regions that the drafter is unsure of
                are looked at then, tiny neighbours on one crop. Without, what the target reads is
                the result: every region, each on its own.
        """
        began = decoder.clock()
        done = Verified()
        if budget is None:
            parts = apart(pieces, page)
        else:
            budget.begin()
            parts = together(unsure(pieces, self.settings.sure), page)
        crops = self._crops(page, parts, cells)
        if budget is not None and budget.seconds is not None:
            crops = affordable(crops, PREFILL * budget.seconds, budget.slot_seconds)
        try:
            for batch in batches(crops, self.settings.region_rows):
                if budget is not None and budget.is_spent():
                    break
                await self._verify(batch, done, budget, decoder)
        except SoonerError as error:
            done.reason = str(error)
        done.seconds["regions"] = decoder.clock() - began
        return done

    def _crops(self, page: Page, parts: Sequence[Part], cells: Cells | None) -> list[Crop]:
        seen = page.picture if cells is None else cells.picture(page)
        side = SIDE if cells is None else cells.side
        crops = []
        for part in parts:
            picture = self._cut(page, part.region, cells, seen)
            slots = self._words(part.piece) + picture.shape[0] * picture.shape[1] // side**2
            drafts = region_drafts(self.target.tokenizer, part.piece, self.eos)
            crops.append(Crop(part, picture, drafts, slots))
        return crops

    def _words(self, piece: Piece) -> int:
        """Returns tokens of what is asked about a crop."""
        prompt = self._prompt(piece)
        if prompt not in self._lengths:
            ids = self.target.tokenizer(prompt, add_special_tokens=False)["input_ids"]
            self._lengths[prompt] = len(ids)
        return self._lengths[prompt]

    def _prompt(self, piece: Piece) -> str:
        return (piece.question or self.ask.about(piece.region)).prompt

    def _cut(self, page: Page, region: Region, cells: Cells | None, seen: Picture) -> Picture:
        assert region.bbox is not None
        if cells is None:
            return page.crop(region.bbox, self.settings.margin)
        return cells.crop(seen, region.bbox, page.size)

    async def _verify(
        self,
        crops: Sequence[Crop],
        done: Verified,
        budget: StageBudget | None,
        decoder: PageDecoder,
    ) -> None:
        """Read a batch; where memory runs out, half of its rows at a time.

        Raises:
            MemoryRanOutError: one row is too many.
        """
        try:
            await self._read(crops, done, budget, decoder)
            return
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if len(crops) == 1:
                raise MemoryRanOutError(f"a single region: {error}") from error
        release()  # out here nothing holds on to what the failed run had allocated
        half = (len(crops) + 1) // 2
        await self._verify(crops[:half], done, budget, decoder)
        await self._verify(crops[half:], done, budget, decoder)

    async def _read(
        self,
        crops: Sequence[Crop],
        done: Verified,
        budget: StageBudget | None,
        decoder: PageDecoder,
    ) -> None:
        began = time.perf_counter()
        size = decoder.max_rows or len(crops)
        rows = [crops[start : start + size] for start in range(0, len(crops), size)]
        requests = [self._request(item, budget) for item in rows]
        done.seconds["processor"] += time.perf_counter() - began
        results = await decoder.decode(requests)
        done.runs += [item.stats for item in results]
        if budget is not None:
            budget.spent += max(item.stats.nfe for item in results)
        decoded = [item for result in results for item in result.rows]
        for crop, item in zip(crops, decoded, strict=True):
            self._keep(crop, item, done)

    def _request(self, crops: Sequence[Crop], budget: StageBudget | None) -> DecodeRequest:
        settings, is_result = self.settings, budget is None
        inputs = picture_inputs(
            self.target.processor,
            [crop.picture for crop in crops],
            [self._prompt(crop.part.piece) for crop in crops],
            self.target.model,
            self.ask.template,
        )
        limits = [crop.limit(is_result) for crop in crops]
        room = room_for(self.target.model, inputs, min(max(limits), settings.max_new_tokens))
        experience = self.experience if settings.acceptance_threshold == 1 else None
        return DecodeRequest(
            "regions",
            inputs,
            limits=[min(limit, room) for limit in limits],
            repetition=[crop.repetition(settings.repetition, is_result) for crop in crops],
            drafts=[[crop.drafts] for crop in crops],
            verification={**settings.verification, "experience": experience},
            seconds=settings.timeout,
            budget=budget,
        )

    def _keep(self, crop: Crop, output: DecodedRow, done: Verified) -> None:
        pieces = crop.part.pieces
        if len(pieces) == 1:
            done.output[pieces[0].place] = output
        if output.truncated in (None, BUDGET):
            form = self.ask.about(pieces[0].region).form
            text = decoded(self.target.tokenizer, output.tokens, form, self.eos)
            texts = crop.part.split(text)
            done.texts.update({place: text for place, text in texts.items() if text})
