"""A page under way, and stage 1: its regions on their own crops, several in a ragged batch.

Whether stage 1 runs, and what it may cost, is decided by measurement. With it and without, the text
is the same at acceptance threshold 1. It costs crops' prefill and forwards, and saves forwards of
the page where drafts are rough.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from ...documents import Page, PageDraft
from ...documents.page import Picture
from ...documents.regions import Box, Label, Size, clipped
from ...engine.stats.run import Stats
from ...errors import MemoryRanOutError, SoonerError, is_out_of_memory
from ...methods.aligned.alignment import Experience
from ...methods.controller import Quickest
from ...parity import end_ids
from .contexts import Ids, Piece, decoded, region_drafts
from .decoding import (
    DecodedRow,
    DecodeRequest,
    DecodeResult,
    PageDecoder,
    release,
    stage_stats,
)
from .families import FamilyPrompts
from .model_inputs import Cells, picture_inputs, room_for
from .result import BUDGET, ParsedPage, StageStats
from .settings import ParseSettings

PAGE, BOTH = "page", "both"
COLD = 1
"""Untimed warm-up pages of each variant."""
ENOUGH = 2
"""Timed pages of each variant before they are compared: one time may be an outlier."""
GAIN = 0.03
"""Share by which stage 1 has to make pages faster to be kept."""
AGAIN = 12
"""Pages after which the way that lost is tried once more, since documents change."""
TRIAL, TRIAL_PROMPT = 0.1, 0.5
"""Shares of a page's forwards and prompt that stage 1 may spend before it is seen to pay."""

RECENT = 8
"""Recent pages from which a cost is estimated."""
FIRST = 1 / 16
"""Forwards per drafted character of a page alone, where nothing is measured: four characters a
token, four tokens a forward."""
MIN_FORWARDS = 3
"""Below this many forwards (the crops' prefill and two rounds) stage 1 is not begun."""

SIDE = 28
"""Pixels of a visual token's side, where the processor does not say."""

MIN_SIDE, MAX_ASPECT = 8, 100.0
"""Crops that are smaller, or longer by far than wide, are refused by processors."""

ROWS = 32
"""Crops of a batch at most."""

PADDED = 1.5
"""Prompt tokens of a batch with its padding, in prompt tokens of its crops, at most."""

UNKNOWN = 0.5
"""Confidence that a region counts for of which the drafter says none."""

TIMES, SPARE, RESULT_SPARE = 2, 16, 32
"""New tokens at most on a crop: `TIMES` those of its draft, and `SPARE` more, or so many where they
are the result."""


def fixed_forwards(letters: int) -> int:
    """Returns forwards that a page of so many drafted characters may take: neither the clock nor
    earlier pages have an influence, on which the text would depend below threshold 1.
    """
    return max(round(FIRST * letters), MIN_FORWARDS)


class StageChoice:
    """Chooses for the next page whether stage 1 runs, and what it may spend.

    A way's pace is the lower median of its last few pages' seconds a token: one page that was
    disturbed can't move it. All of stage 1 and the page's decoding count.

    Attributes:
        ways: what pages took.
        recent: of passes over recent pages (stage 2), how many letters were drafted for each, and
            the forwards that it took, the prefill included.
    """

    def __init__(self) -> None:
        self.recent: deque[tuple[int, int]] = deque(maxlen=RECENT)
        self.ways = Quickest(
            (PAGE, BOTH), trials=ENOUGH, cold=COLD, margin=1 / (1 - GAIN), again=AGAIN,
        )  # fmt: skip

    @property
    def share(self) -> float:
        """Returns how much of a page's expected cost it may be: all of it where it pays."""
        return 1.0 if self.ways.is_known() and self.ways.best() == BOTH else TRIAL

    def add(
        self, way: str, tokens: int, seconds: float, letters: int = 0, forwards: int = 0
    ) -> None:
        """What a page took; one of no tokens, or that never ended (0), counts as tried only."""
        self.ways.add(way, 1, seconds / tokens if tokens else None)
        if letters:
            self.recent.append((letters, forwards))

    def budget(self, letters: int, slots: int) -> tuple[int, float]:
        """Returns what stage 1 may spend, in forwards and prompt tokens: a share of those that the
        cheapest of recent pages took, a letter or in all, whichever is less (none before any is
        known), and of the page's prompt.

        Args:
            letters: drafted for the page.
            slots: tokens of its prompt.
        """
        costs = (forwards * min(letters / drafted, 1.0) for drafted, forwards in self.recent)
        forwards = int(self.share * int(min(costs, default=0)))
        return forwards, max(self.share, TRIAL_PROMPT) * slots


@dataclass
class PageWork:
    """Holds a page under way.

    Attributes:
        page: its picture.
        draft: what drafters say of it; empty for nothing.
        decoder: of the page.
        notes: what went wrong.
        inputs: the page as the model's inputs, of one row.
        cells: the model's raster of visual tokens over the page, if it has one.
        forwards: that stage 1 may still take, all its batches together, prefills included; `None`
            where what it reads is the result.
        slots: prompt tokens of all its crops.
        pieces: regions for stage 1.
        output: of those that it read, by `Piece.place`.
        texts: by `Piece.place`, of crops that ended or came as far as a budget; without, of all.
        stats: of the batches of stage 1.
        seconds: that it took.
    """

    page: Page
    draft: PageDraft
    decoder: PageDecoder
    notes: list[str]
    inputs: dict[str, Any] = field(default_factory=dict)
    cells: Cells | None = None
    forwards: int | None = None
    slots: float = math.inf
    pieces: list[Piece] = field(default_factory=list)
    output: dict[int, DecodedRow] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    stats: Stats = field(default_factory=lambda: Stats(rows=0))
    seconds: float = 0.0

    @property
    def letters(self) -> int:
        """How many were drafted, the best draft of each region."""
        return sum(len(region.drafts[0]) for region in self.draft.regions if region.drafts)

    @property
    def size(self) -> Size | None:
        """Returns width and height in which the model says boxes, if that can be told."""
        return None if self.cells is None else self.cells.size

    @property
    def drafter(self) -> str:
        """By whose name `HSD` keeps what it learns of the page's drafts; empty for nobody's."""
        name = self.draft.drafter
        # Where stage 1 read something, most drafts are the target's own.
        return f"{name}, read on crops" if name and self.stats.rows else name

    def parsed(self, *runs: Stats, stages: dict[str, StageStats], **fields: Any) -> ParsedPage:
        """Returns the page with what became of it.

        Args:
            runs: of stage 2.
            stages: figures of that.
            fields: of `ParsedPage`.
        """
        runs = (self.stats, *runs)
        first = {"regions": stage_stats(self.stats)} if self.stats.rows else {}
        return ParsedPage(
            source=self.page.source.name,
            number=self.page.number,
            size=self.page.size,
            drafter=self.draft.drafter,
            notes=self.notes,
            stages=first | stages,
            seconds={
                "drafter": self.draft.seconds,
                "processor": self.decoder.own_seconds,
                "vision": sum(run.seconds["vision"] for run in runs),
                "prefill": sum(run.seconds["prefill"] for run in runs),
                "decode": sum(run.decode_seconds for run in runs),
                "regions": self.seconds,
            },
            **fields,
        )


@dataclass(frozen=True)
class Crop:
    """A crop of the page and its drafts, as the target gets them.

    Attributes:
        piece: what it shows.
        picture: `[height, width, 3]` uint8.
        drafts: token ids of its drafts; may be empty.
        slots: its visual tokens, by the size of the picture.
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
        self.eos = end_ids(target.model)

    async def __call__(self, work: PageWork) -> None:
        """Read the regions of a page; pieces without a box are left out.

        Within a budget only regions are looked at that the drafter is unsure of. Without, what the
        target reads is the result: every region.
        """
        decoder = work.decoder
        began = decoder.clock()
        pending = batches(affordable(await decoder.call(self._crops, work), work.slots))
        try:
            while pending and (work.forwards is None or work.forwards > 0):
                batch = pending.pop(0)
                if not await self._verify(batch, work):
                    half = (len(batch) + 1) // 2
                    pending[:0] = [batch[:half], batch[half:]]
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
        for piece in pieces if work.forwards is None else unsure(pieces, self.settings.sure):
            bbox = piece.region.bbox
            if bbox is None or not is_worth_a_look(bbox, page):
                continue
            if cells is None:
                picture = page.crop(bbox, self.settings.margin)
            else:
                picture = cells.crop(seen, bbox, page.size)
            slots = picture.shape[0] * picture.shape[1] // side**2
            drafts = region_drafts(self.target.tokenizer, piece, self.eos)
            crops.append(Crop(piece, picture, drafts, slots))
        return crops

    async def _verify(self, crops: Sequence[Crop], work: PageWork) -> bool:
        """Read a batch; returns whether memory sufficed for it.

        Raises:
            MemoryRanOutError: it did not for a single row.
        """
        decoder = work.decoder
        size = decoder.max_rows or len(crops)
        rows = [crops[start : start + size] for start in range(0, len(crops), size)]
        results: list[DecodeResult] = []
        try:
            requests = [await decoder.call(self._request, item, work.forwards) for item in rows]
            results = await decoder.decode(requests)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if len(crops) == 1:
                raise MemoryRanOutError(f"a single region: {error}") from error
        if not results:
            requests = []
            release()  # out here nothing holds on to what the failed run had allocated
            return False
        for item in results:
            work.stats.merge(item.stats, work.stats.rows)
        if work.forwards is not None:
            work.forwards -= max(item.stats.nfe for item in results)
        for crop, row in zip(crops, [row for item in results for row in item.rows], strict=True):
            await decoder.call(self._keep, crop, row, work)
        return True

    def _request(self, crops: Sequence[Crop], forwards: int | None) -> DecodeRequest:
        settings = self.settings
        inputs = picture_inputs(
            self.target.processor,
            [crop.picture for crop in crops],
            [self.ask.about(crop.piece.region).prompt for crop in crops],
            self.target.model,
            self.ask.template,
        )
        # A draft is only about right, and a crop says no more of a period than is expected.
        spare, repetition = RESULT_SPARE, [settings.repetition] * len(crops)
        if forwards is not None:
            spare = SPARE
            repetition = [min(settings.repetition, crop.length + SPARE) for crop in crops]
        limits = [TIMES * crop.length + spare for crop in crops]
        room = room_for(self.target.model, inputs, min(max(limits), settings.max_new_tokens))
        return DecodeRequest(
            inputs,
            limits=[min(limit, room) for limit in limits],
            repetition=repetition,
            drafts=[[crop.drafts] for crop in crops],
            verification=settings.verification(self.experience),
            verify_every=settings.verify_every,
            seconds=settings.timeout,
            forwards=forwards,
        )

    def _keep(self, crop: Crop, output: DecodedRow, work: PageWork) -> None:
        piece = crop.piece
        work.output[piece.place] = output
        if work.forwards is None or output.truncated in (None, BUDGET):
            form, tokens = self.ask.about(piece.region).form, output.tokens[: output.sound]
            text = decoded(self.target.tokenizer, tokens, form, self.eos)
            if text:
                work.texts[piece.place] = text


def unsure(pieces: Sequence[Piece], sure: float) -> list[Piece]:
    """Returns the regions that the drafter is unsure of, or drafters say different things of.

    A formula is never sure: confidence is about its characters, not its structure.
    """
    return [
        piece
        for piece in pieces
        if len(piece.texts) > 1
        or piece.region.confidence is None
        or piece.region.confidence <= sure
        or piece.region.label == Label.FORMULA
    ]


def affordable(crops: Sequence[Crop], slots: float) -> list[Crop]:
    """Returns the regions that so many prompt tokens have room for, the least sure ones first."""

    def confidence(crop: Crop) -> float:
        value = crop.piece.region.confidence
        return UNKNOWN if value is None else value

    ordered = sorted(crops, key=confidence)
    spent = accumulate(crop.slots for crop in ordered)
    return [crop for crop, total in zip(ordered, spent, strict=True) if total <= slots]


def batches(crops: Sequence[Crop]) -> list[list[Crop]]:
    """Returns crops of similar size together, so that little of a batch is padding."""
    result: list[list[Crop]] = [[]]
    for crop in sorted(crops, key=lambda crop: -crop.slots):  # the first of a batch is the widest
        batch = [*result[-1], crop]
        padded = len(batch) * batch[0].slots
        if len(batch) > ROWS or padded > PADDED * sum(entry.slots for entry in batch):
            result.append([])
        result[-1].append(crop)
    return [batch for batch in result if batch]


def is_worth_a_look(bbox: Box, page: Page) -> bool:
    """Returns whether a processor takes the crop of a box on the page."""
    x0, y0, x1, y1 = clipped(bbox, *page.size)
    short, long = sorted((x1 - x0, y1 - y0))
    return short >= MIN_SIDE and long <= MAX_ASPECT * short
