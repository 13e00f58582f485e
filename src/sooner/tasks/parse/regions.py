"""Stage 1: regions of a page on their own crops, several of them in a ragged batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

from ...documents import Page
from ...documents.page import Picture
from ...documents.regions import FORMULA, Box, clipped
from ...errors import MemoryRanOutError, SoonerError, is_out_of_memory
from ...methods.aligned.alignment import Experience
from .contexts import Ids, Piece, decoded, region_drafts
from .decoding import DecodedRow, DecodeRequest, DecodeResult, eos_ids, release
from .forms import FamilyPrompts
from .model_inputs import picture_inputs, room_for
from .page_work import PageWork
from .result import BUDGET
from .settings import ParseSettings
from .stages import StageBudget

SIDE = 28
"""Pixels of a visual token's side, where the processor does not say."""

MIN_SIDE, MAX_ASPECT = 8, 100.0
"""Crops that are smaller, or longer by far than wide, are refused by processors."""

PADDED = 1.5
"""Prompt tokens of a batch with its padding, in prompt tokens of its crops, at most."""

UNKNOWN = 0.5
"""Confidence that a region counts for of which the drafter says none."""

TIMES, SPARE, EMPTY = 2, 8, 16
"""New tokens at most on a crop: `TIMES` those of its draft, and `SPARE` more; `EMPTY` without a
draft."""

RESULT_SPARE = 32
"""Further tokens where the output is the result, not a draft of the page."""


@dataclass(frozen=True)
class Crop:
    """A crop of the page and its drafts, as the target gets them.

    Attributes:
        piece: what it shows.
        picture: `[height, width, 3]` uint8.
        drafts: token ids of its drafts; may be empty.
        slots: prompt tokens, by the size of the picture.
    """

    piece: Piece
    picture: Picture
    drafts: list[Ids]
    slots: int

    @property
    def length(self) -> int:
        """Returns tokens of its longest draft."""
        return max(map(len, self.drafts), default=0)


class RegionStage:
    """Verifies the drafts of each region on its crop (section 3.1, eq. 2).

    Args:
        target: the loaded model, see `sooner.tasks.loading.Loaded`.
        settings: how.
        ask: what the target is asked about crops.
    """

    def __init__(self, target: Any, settings: ParseSettings, ask: FamilyPrompts) -> None:
        self.target, self.settings, self.ask = target, settings, ask
        # Drafts of this stage are a pipeline's, those of the second are the target's own.
        self.experience = Experience()
        self.eos = eos_ids(target.model)
        self._words = cache(  # tokens of what is asked about a crop
            lambda prompt: len(target.tokenizer(prompt, add_special_tokens=False)["input_ids"])
        )

    async def __call__(self, work: PageWork) -> None:
        """Read the regions of a page; pieces without a box are left out.

        Within a budget only regions are looked at that the drafter is unsure of. Without, what the
        target reads is the result: every region.
        """
        decoder, budget = work.decoder, work.budget
        began = decoder.clock()
        crops = await decoder.call(self._crops, work)
        if budget is not None and budget.slots is not None:
            crops = affordable(crops, budget.slots)
        try:
            for batch in batches(crops, self.settings.region_rows):
                if budget is not None and budget.is_spent():
                    break
                await self._verify(batch, work)
        except SoonerError as error:
            work.notes.append(f"stage 1 was left out: {error}")
        work.seconds = decoder.clock() - began

    def _crops(self, work: PageWork) -> list[Crop]:
        """Returns what the target sees of regions: they are cut out along its raster over the page,
        if it has one, else with a margin.
        """
        page, cells, pieces = work.page, work.cells, work.pieces
        seen = page.picture if cells is None else cells.picture(page)
        side = SIDE if cells is None else cells.side
        crops = []
        for piece in pieces if work.budget is None else unsure(pieces, self.settings.sure):
            bbox = piece.region.bbox
            if bbox is None or not is_worth_a_look(bbox, page):
                continue
            if cells is None:
                picture = page.crop(bbox, self.settings.margin)
            else:
                picture = cells.crop(seen, bbox, page.size)
            tokens = picture.shape[0] * picture.shape[1] // side**2
            slots = self._words(self._prompt(piece)) + tokens
            drafts = region_drafts(self.target.tokenizer, piece, self.eos)
            crops.append(Crop(piece, picture, drafts, slots))
        return crops

    def _prompt(self, piece: Piece) -> str:
        return (piece.question or self.ask.about(piece.region)).prompt

    async def _verify(self, crops: Sequence[Crop], work: PageWork) -> None:
        """Read a batch; where memory runs out, half of its rows at a time.

        Raises:
            MemoryRanOutError: one row is too many.
        """
        began, decoder = time.perf_counter(), work.decoder
        size = decoder.max_rows or len(crops)
        rows = [crops[start : start + size] for start in range(0, len(crops), size)]
        results: list[DecodeResult] = []
        try:
            requests = [await decoder.call(self._request, item, work.budget) for item in rows]
            work.processor += time.perf_counter() - began
            results = await decoder.decode(requests)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if len(crops) == 1:
                raise MemoryRanOutError(f"a single region: {error}") from error
        if not results:
            requests = []
            release()  # out here nothing holds on to what the failed run had allocated
            half = (len(crops) + 1) // 2
            await self._verify(crops[:half], work)
            await self._verify(crops[half:], work)
            return
        for item in results:
            work.stats.merge(item.stats, work.stats.rows)
        if work.budget is not None:
            work.budget.spent += max(item.stats.nfe for item in results)
        for crop, row in zip(crops, [row for item in results for row in item.rows], strict=True):
            await decoder.call(self._keep, crop, row, work)

    def _request(self, crops: Sequence[Crop], budget: StageBudget | None) -> DecodeRequest:
        settings, is_result = self.settings, budget is None
        inputs = picture_inputs(
            self.target.processor,
            [crop.picture for crop in crops],
            [self._prompt(crop.piece) for crop in crops],
            self.target.model,
            self.ask.template,
        )
        # A draft is only about right, and a crop says no more of a period than is expected.
        limits = [
            TIMES * crop.length + (RESULT_SPARE if is_result else SPARE)
            if crop.length or is_result
            else EMPTY
            for crop in crops
        ]
        repetition = [settings.repetition] * len(crops)
        if not is_result:
            repetition = [min(settings.repetition, crop.length + SPARE) for crop in crops]
        room = room_for(self.target.model, inputs, min(max(limits), settings.max_new_tokens))
        return DecodeRequest(
            "regions",
            inputs,
            limits=[min(limit, room) for limit in limits],
            repetition=repetition,
            drafts=[[crop.drafts] for crop in crops],
            verification=settings.verification(self.experience),
            seconds=settings.timeout,
            budget=budget,
        )

    def _keep(self, crop: Crop, output: DecodedRow, work: PageWork) -> None:
        piece = crop.piece
        work.output[piece.place] = output
        if output.truncated in (None, BUDGET):
            form = self.ask.about(piece.region).form
            text = decoded(self.target.tokenizer, output.tokens, form, self.eos)
            if text:
                work.texts[piece.place] = text


def unsure(pieces: Sequence[Piece], sure: float) -> list[Piece]:
    """Returns the regions that the drafter is not sure of, or of which drafters say different
    things.

    A formula is never sure: confidence is about its characters, not its structure.
    """
    return [
        piece
        for piece in pieces
        if len(piece.texts) > 1
        or piece.region.confidence is None
        or piece.region.confidence <= sure
        or piece.region.label == FORMULA
    ]


def affordable(crops: Sequence[Crop], slots: float) -> list[Crop]:
    """Returns the regions that so many prompt tokens have room for, the least sure ones first."""

    def confidence(crop: Crop) -> float:
        value = crop.piece.region.confidence
        return UNKNOWN if value is None else value

    ordered = sorted(crops, key=confidence)
    spent = accumulate(crop.slots for crop in ordered)
    return [crop for crop, total in zip(ordered, spent, strict=True) if total <= slots]


def batches(crops: Sequence[Crop], rows: int) -> list[list[Crop]]:
    """Returns crops of similar size together, `rows` at most, so that little of a batch is
    padding.
    """
    result: list[list[Crop]] = [[]]
    for crop in sorted(crops, key=lambda crop: -crop.slots):  # the first of a batch is the widest
        batch = [*result[-1], crop]
        padded = len(batch) * batch[0].slots
        if len(batch) > rows or padded > PADDED * sum(entry.slots for entry in batch):
            result.append([])
        result[-1].append(crop)
    return [batch for batch in result if batch]


def is_worth_a_look(bbox: Box, page: Page) -> bool:
    """Returns whether a processor takes the crop of a box on the page."""
    x0, y0, x1, y1 = clipped(bbox, *page.size)
    short, long = sorted((x1 - x0, y1 - y0))
    return short >= MIN_SIDE and long <= MAX_ASPECT * short
