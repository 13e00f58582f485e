"""Stage 1: every region of a page on its own crop, all of them in one ragged batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...decoding.stats import Stats
from ...documents import Page, Region
from ...documents.page import Picture
from ...methods import HSD
from ...methods.aligned import Experience
from .asking import picture_inputs, room_for
from .cells import Cells
from .contexts import Piece, region_drafts
from .settings import ParseSettings
from .speaking import Said, eos_ids, speak

LEAST_SIDE, MOST_ASPECT = 8, 100.0
"""Crops that are smaller, or longer by far than wide, are refused by processors and hold little."""

SPARE, TIMES = 32, 2
"""A region may say so many tokens, and so many times the tokens, of its longest draft."""


@dataclass
class Verified:
    """What stage 1 made of some pieces.

    Attributes:
        said: for each piece; `None` if it was left out.
        runs: figures of the batches.
        seconds: of everything; `processor` that of making inputs.
    """

    said: list[Said | None]
    runs: list[Stats] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: {"regions": 0.0, "processor": 0.0})


@dataclass(frozen=True)
class _Crop:
    place: int
    picture: Picture
    drafts: list[list[int]]


class RegionStage:
    """Verifies the drafts of each region on its crop (section 3.1, eq. 2).

    Args:
        target: the loaded model, see `sooner.tasks.loading.Loaded`.
        settings: how.
        prompt: what the target is asked about a crop.
        experience: of stage 1, kept from page to page.
    """

    def __init__(
        self, target: Any, settings: ParseSettings, prompt: str, experience: Experience
    ) -> None:
        self.target, self.settings, self.prompt = target, settings, prompt
        self.experience = experience
        self.eos = eos_ids(target.model)

    def __call__(self, page: Page, pieces: Sequence[Piece], cells: Cells | None = None) -> Verified:
        """What the target reads in each piece's region; pieces without a box are left out.

        Args:
            cells: the target's raster over the page, along which regions are cut out of it as the
                target sees it; without, they get a margin.
        """
        began = time.perf_counter()
        done = Verified([None] * len(pieces))
        seen = page.picture if cells is None else cells.picture(page)
        crops = []
        for place, piece in enumerate(pieces):
            drafts = region_drafts(self.target.tokenizer, piece, self.eos)
            if drafts and is_worth_a_look(piece.region, page):
                crops.append(_Crop(place, self._cut(page, piece.region, cells, seen), drafts))
        for first in range(0, len(crops), self.settings.region_rows):
            self._verify(crops[first : first + self.settings.region_rows], done)
        done.seconds["regions"] = time.perf_counter() - began
        return done

    def _cut(self, page: Page, region: Region, cells: Cells | None, seen: Picture) -> Picture:
        assert region.bbox is not None
        if cells is None:
            return page.crop(region.bbox, self.settings.margin)
        return cells.crop(seen, region.bbox, page.size)

    def _verify(self, crops: Sequence[_Crop], done: Verified) -> None:
        began = time.perf_counter()
        inputs = picture_inputs(
            self.target.processor, [crop.picture for crop in crops], self.prompt, self.target.model
        )
        done.seconds["processor"] += time.perf_counter() - began
        longest = max(len(draft) for crop in crops for draft in crop.drafts)
        wanted = min(TIMES * longest + SPARE, self.settings.max_new_tokens)
        limit = room_for(self.target.model, inputs, wanted)
        method = HSD(
            [[crop.drafts] for crop in crops],
            **self.settings.verification,
            experience=self.experience if self.settings.tolerance == 1 else None,
        )
        said, stats = speak(
            self.target.model, inputs, method, limit, self.settings.repetition, set(self.eos),
            seconds=self.settings.timeout,
        )  # fmt: skip
        if stats is not None:
            done.runs.append(stats)
        for crop, one in zip(crops, said, strict=True):
            done.said[crop.place] = one


def is_worth_a_look(region: Region, page: Page) -> bool:
    """Whether a region has a box on the page that a processor will take."""
    if region.bbox is None:
        return False
    x0, y0, x1, y1 = region.bbox
    across = min(x1, page.width) - max(x0, 0.0)
    down = min(y1, page.height) - max(y0, 0.0)
    if min(across, down) < LEAST_SIDE:
        return False
    return max(across, down) <= MOST_ASPECT * min(across, down)
