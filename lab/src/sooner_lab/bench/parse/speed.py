"""The arms on the same pages, one page after the other: times, counts, and whether ids agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from sooner.documents import PageDraft, to_markdown
from sooner.documents.drafters import PageDrafter
from sooner.engine.stats.run import EXACT
from sooner.parity import compare, reference_run

from .arms import ParseContender, Spoken, Stable
from .sheets import Sheet

Progress = Callable[[str], None]
Data = dict[str, Any]
Drafts = Mapping[str, PageDraft | None]
Saids = dict[str, list[Spoken]]
VERDICTS = ("bug", "tie", "identical")
"""The worst one first."""


class Course:
    """Runs contenders page by page, all of them on a page before the next one begins.

    Args:
        stable: where they are from.
        contenders: plain first; one that is there several times has the median of all its runs.
        repeats: timed runs of each on each page.
        progress: told what is being done.
    """

    def __init__(
        self,
        stable: Stable,
        contenders: Sequence[ParseContender],
        repeats: int,
        progress: Progress,
    ) -> None:
        self.stable, self.contenders = stable, contenders
        self.repeats, self.progress = repeats, progress

    def run(self, sheets: Sequence[Sheet], drafter: PageDrafter) -> tuple[list[Data], list[Data]]:
        """Records and texts of every page but the first, which warms up models and machine."""
        pages, texts = [], []
        for place, sheet in enumerate(sheets):
            self.progress(f"page {place} of {len(sheets) - 1}: drafting" if place else "warm-up")
            draft = drafter(sheet.page)
            drafts = {arm.name: draft if arm.drafted else None for arm in self.contenders}
            outputs = self.page(sheet, drafts, self.repeats if place else 1, place)
            if place:
                pages.append(self.record(sheet, drafts, outputs))
                texts.append(
                    report(sheet, draft, {name: runs[0] for name, runs in outputs.items()})
                )
        return pages, texts

    def page(self, sheet: Sheet, drafts: Drafts, repeats: int, turn: int) -> Saids:
        """Every arm on one page, beginning with another one at each turn."""
        outputs: Saids = {contender.name: [] for contender in self.contenders}
        count = len(self.contenders)
        for repeat in range(repeats):
            for place in range(count):
                arm = self.contenders[(place + turn + repeat) % count]
                self.progress(f"page {sheet.number}: {arm.name}")
                outputs[arm.name].append(arm.parse(sheet, drafts[arm.name]))
        return outputs

    def record(self, sheet: Sheet, drafts: Drafts, outputs: Saids) -> Data:
        """What is known of a page."""
        plain = outputs[self.contenders[0].name][0]
        arms = {}
        for arm in self.contenders:
            draft, runs = drafts[arm.name], outputs[arm.name]
            arms[arm.name] = {
                **record_of(arm, runs, plain),
                "drafter": draft.seconds if draft is not None else 0.0,
                "verdict": self._verdict(arm, runs, plain, sheet),
            }
        return {"number": sheet.number, "kinds": list(sheet.kinds), "arms": arms}

    def _verdict(
        self, arm: ParseContender, runs: Sequence[Spoken], plain: Spoken, sheet: Sheet
    ) -> str | None:
        if arm.mode != EXACT:
            return None
        verdicts = [verdict(self.stable, sheet, plain, entry) for entry in runs]
        return next(entry for entry in VERDICTS if entry in verdicts)


def verdict(stable: Stable, sheet: Sheet, plain: Spoken, other: Spoken) -> str:
    """Whether an exact arm said what plain decoding says: `identical`, `tie` or `bug`."""
    if other.same_as(plain):
        return "identical"
    if other.tokens is None or plain.tokens is None:
        return "bug"
    inputs, limit = stable.inputs(sheet)
    tokens, scores = reference_run(stable.model, inputs, max_new_tokens=limit)
    ended = tokens[0][len(other.tokens) :][:1]
    candidate = [*other.tokens, *(ended if not other.truncated else [])]
    return compare(tokens[0], candidate, scores[0]).verdict


def record_of(arm: ParseContender, runs: Sequence[Spoken], plain: Spoken) -> Data:
    """One arm on one page: counts of its first run, medians of the times of all."""
    first = runs[0]
    stats, regions = first.stats, first.regions
    return {
        "mode": arm.mode,
        "tokens": len(first.tokens) if first.tokens is not None else 0,
        "truncated": first.truncated,
        "same": all(each.same_as(plain) for each in runs),
        "decode": median(each.decode_seconds for each in runs),
        "drafting": median(each.drafting_seconds for each in runs),
        "making": median(each.making_seconds for each in runs),
        "e2e": median(each.e2e_seconds for each in runs),
        "forwards": first.forwards,
        "region_forwards": sum(each.nfe for each in regions),
        "steps": None if stats is None else stats.num_spec_steps,
        "accepted": None if stats is None else stats.num_accepted_draft_tokens,
        "levels": None if stats is None else stats.num_draft_levels,
        "region_steps": sum(each.num_spec_steps for each in regions),
        "region_accepted": sum(each.num_accepted_draft_tokens for each in regions),
    }


def report(sheet: Sheet, draft: PageDraft, outputs: dict[str, Spoken]) -> Data:
    """Output and ground truth of a page, for `scores`."""
    return {
        "number": sheet.number,
        "truth": sheet.truth,
        "draft": to_markdown(draft.regions),
        **{name: output.text for name, output in outputs.items()},
    }
