"""Acceptance and speed by the quality of drafts, down to drafts that are never right (figure 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sooner.documents import PageDraft, to_markdown
from sooner.documents.drafters import PageDrafter

from .arms import ParseContender, Stable
from .damage import degraded, garbage, jittered, misspelt
from .figures import arm_rows
from .scores import shared_words
from .settings import ParseBenchSettings
from .sheets import Sheet, oracle, sample_sheets
from .speed import Course

Progress = Callable[[str], None]
Data = dict[str, Any]

LEVELS: dict[str, tuple[float, ...]] = {
    "truth": (0.0,),
    "ocr": (0.0,),
    "image": (0.3, 0.6),
    "letters": (0.03, 0.1, 0.25),
    "boxes": (0.1,),
    "garbage": (1.0,),
}
"""How drafts are made worse, and how far."""

STAGES = {"page": "hsd-page", "both": "hsd"}
REPEATS = 3
"""Timed runs where a difference of a few per cent is asked for."""

EVERY = 6
"""Arms between two runs of plain decoding."""


def quality(
    settings: ParseBenchSettings, stable: Stable, drafter: PageDrafter, progress: Progress
) -> Data:
    """Both arms of tau = 1 with every draft, and plain decoding in turns with useless drafts.

    Returns:
        `rows`, one for each draft and arm; `garbage`, plain decoding against drafts that are never
        right, by stages.
    """
    bench = _Quality(settings, stable, drafter, progress)
    rows = bench.curve()
    return {"rows": rows, "garbage": bench.duel()}


class _Quality:
    """The pages of this part, and their drafts."""

    def __init__(
        self,
        settings: ParseBenchSettings,
        stable: Stable,
        drafter: PageDrafter,
        progress: Progress,
    ) -> None:
        self.settings, self.stable, self.progress = settings, stable, progress
        self.drafter = drafter
        self.rng = np.random.default_rng(settings.seed)
        self.levels = [
            (kind, level)
            for kind, levels in LEVELS.items()
            for level in levels
            if settings.levels is None or name_of(kind, level) in settings.levels
        ]
        # The first one warms up: every draft has its own experience.
        self.sheets = sample_sheets(1 + settings.quality_pages, "quality", settings.seed)
        self.drafts = [self._drafts(sheet) for sheet in self.sheets]

    def _drafts(self, sheet: Sheet) -> dict[str, PageDraft]:
        """Every draft of a page, by kind and level."""
        self.progress(f"quality: drafting page {sheet.number}")
        read = self.drafter(sheet.page)
        return {
            name_of(kind, level): self._draft(sheet, read, kind, level)
            for kind, level in self.levels
        }

    def _draft(self, sheet: Sheet, read: PageDraft, kind: str, level: float) -> PageDraft:
        if kind == "truth":
            return oracle(sheet)
        if kind == "image":
            return self.drafter(degraded(sheet.page, level, self.rng))
        if kind == "letters":
            return misspelt(read, level, self.rng)
        if kind == "boxes":
            return jittered(read, level, self.rng)
        return garbage(read, self.rng) if kind == "garbage" else read

    def curve(self) -> list[Data]:
        """Every draft but garbage, plain decoding beside them."""
        names = [name_of(kind, level) for kind, level in self.levels if kind != "garbage"]
        made = self._measured(names, STAGES, 1)
        return [self._told(row) for row in made]

    def duel(self) -> list[Data]:
        """Plain decoding and garbage in turns, some of them."""
        names = [name_of(kind, level) for kind, level in self.levels if kind == "garbage"]
        return [self._told(row) for row in self._measured(names, STAGES, REPEATS)]

    def _measured(self, names: Sequence[str], stages: dict[str, str], repeats: int) -> list[Data]:
        arms = [
            replace(self.stable.hsd(arm, stage), name=f"{name}/{arm}")
            for name in names
            for stage, arm in stages.items()
        ]
        course = Course(self.stable, self._turns(arms), repeats, self.progress)
        pages = []
        for place, sheet in enumerate(self.sheets):
            drafts: dict[str, PageDraft | None] = {"plain": None}
            drafts |= {arm.name: self.drafts[place][arm.name.split("/")[0]] for arm in arms}
            said = course.page(sheet, drafts, repeats if place else 1, place)
            if place:
                pages.append(course.record(sheet, drafts, said))
        return arm_rows(pages, [arm.name for arm in arms], self.settings.seed)

    def _turns(self, arms: Sequence[ParseContender]) -> list[ParseContender]:
        """Plain decoding in front of every few arms: the one that all are held against must not
        be what a single moment of the machine was like."""
        plain = self.stable.contender("plain")
        return [
            one
            for begin in range(0, len(arms), EVERY)
            for one in (plain, *arms[begin : begin + EVERY])
        ]

    def _told(self, row: Data) -> Data:
        name, arm = row.pop("method").split("/")
        row.pop("by_kind")
        kind, level = name.split(" ")
        scores = [
            shared_words(to_markdown(drafts[name].regions).lower(), sheet.truth)
            for sheet, drafts in zip(self.sheets[1:], self.drafts[1:], strict=True)
        ]
        return {
            "kind": kind, "level": float(level), "arm": arm, "quality": sum(scores) / len(scores),
            **row,
        }  # fmt: skip


def name_of(kind: str, level: float) -> str:
    """Name of a draft of `LEVELS`, such as `ocr 0`."""
    return f"{kind} {level:g}"
