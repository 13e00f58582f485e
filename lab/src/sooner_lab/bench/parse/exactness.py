"""Many held-out pages, one question: are the ids those of plain decoding? Nothing is timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sooner.documents import PageDraft
from sooner.documents.drafters import OCR
from sooner.engine.stats.run import EXACT
from sooner.tasks.parse.drafters import guard

from .arms import ParseContender, Spoken, Stable
from .scores import accuracy
from .settings import ParseBenchSettings
from .sheets import Sheet, sample_sheets
from .speed import report, verdict

Progress = Callable[[str], None]
Data = dict[str, Any]


def exactness(settings: ParseBenchSettings, stable: Stable, progress: Progress) -> Data:
    """Parse `exact_pages` pages plainly, in batches, and with drafts, one by one.

    OCR runs in a process of its own beside it, a page once for all arms.

    Returns:
        `exactness`, counts of each arm; `accuracy` of the texts.
    """
    sheets = sample_sheets(settings.exact_pages, "exactness", settings.seed)
    arms = [arm for arm in stable.contenders() if arm.drafted]
    ocr = guard(OCR(settings.threads), "ocr")
    assert ocr is not None
    ahead = ThreadPoolExecutor(1)
    try:
        drafts = ahead.map(ocr, [sheet.page for sheet in sheets])
        plain = _plain(settings, stable, sheets, progress)
        tally, began = _Tally(stable, arms), time.perf_counter()
        for sheet, output, draft in zip(sheets, plain, drafts, strict=True):
            left = (time.perf_counter() - began) * (len(sheets) / max(sheet.number - 1, 1) - 1)
            progress(f"exactness: page {sheet.number} of {len(sheets)}, {left / 60:.0f} min left")
            tally.page(sheet, output, draft)
    finally:
        ahead.shutdown(cancel_futures=True)
        ocr.close()
    return {
        "exactness": tally.report(),
        "accuracy": accuracy(tally.texts, settings, "exactness"),
    }


def _plain(
    settings: ParseBenchSettings, stable: Stable, sheets: Sequence[Sheet], progress: Progress
) -> list[Spoken]:
    """Plain decoding of all pages in batches: rows don't know of each other."""
    outputs: list[Spoken] = []
    for begin in range(0, len(sheets), settings.batch):
        progress(f"exactness: plain decoding of page {begin + 1} and on")
        outputs += stable.plainly(sheets[begin : begin + settings.batch])
    return outputs


class _Tally:
    """Counts what each arm said."""

    def __init__(self, stable: Stable, arms: Sequence[ParseContender]) -> None:
        self.stable, self.arms = stable, arms
        self.texts: list[Data] = []
        self.seconds: list[float] = []
        self.truncated: list[int] = []
        self.rows: dict[str, Data] = {
            arm.name: {
                "method": arm.name, "mode": arm.mode, "pages": 0, "identical": 0, "ties": [],
                "bugs": [], "tokens": 0, "steps": 0, "accepted": 0, "forwards": 0,
            }
            for arm in arms
        }  # fmt: skip

    def page(self, sheet: Sheet, plain: Spoken, draft: PageDraft) -> None:
        """Let every arm read a page."""
        outputs = {arm.name: arm.parse(sheet, draft) for arm in self.arms}
        self.seconds.append(draft.seconds)
        if plain.truncated:
            self.truncated.append(sheet.number)
        for arm in self.arms:
            self._count(arm, sheet, plain, outputs[arm.name])
        self.texts.append(report(sheet, draft, {"plain": plain, **outputs}))

    def _count(self, arm: ParseContender, sheet: Sheet, plain: Spoken, output: Spoken) -> None:
        row = self.rows[arm.name]
        row["pages"] += 1
        row["identical"] += output.same_as(plain)
        if arm.mode == EXACT and not output.same_as(plain):
            # A batch may round otherwise than one row alone, which is what is promised.
            alone = self.stable.plainly([sheet])[0]
            how = verdict(self.stable, sheet, alone, output)
            row["identical"] += how == "identical"
            if how != "identical":
                row["ties" if how == "tie" else "bugs"].append(sheet.number)
        if output.stats is not None and not plain.truncated:
            row["tokens"] += len(output.tokens or ())
            row["steps"] += output.stats.num_spec_steps
            row["accepted"] += output.stats.num_accepted_draft_tokens
            row["forwards"] += output.forwards or 0

    def report(self) -> Data:
        for row in self.rows.values():
            row["aal"] = row["accepted"] / row["steps"] if row["steps"] else None
        return {
            "pages": len(self.texts),
            "truncated": self.truncated,
            "draft_seconds": self.seconds,
            "rows": list(self.rows.values()),
        }
