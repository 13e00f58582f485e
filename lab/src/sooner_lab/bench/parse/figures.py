"""The arms on the same pages, and figures over pages: ratios of totals with their intervals, by arm
and by kind of page."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from sooner.documents.drafters import PageDrafter
from sooner.engine.stats.run import EXACT

from ..run import Arm, ArmSamples, Data, Progress, measure, quotient, verdict_of
from .arms import PageRun, ParseModels, is_drafted, mode_of
from .settings import ParseBenchSettings
from .sheets import KINDS, Sheet, sample_sheets

SPEEDS = {"decode_speedup": "decode", "drafted_speedup": "drafted", "e2e_speedup": "e2e"}
"""Name of each speed-up, and the seconds of a page that it is the ratio of."""


def arms_part(
    settings: ParseBenchSettings, models: ParseModels, drafter: PageDrafter, progress: Progress
) -> list[Data]:
    """Time the arms on held-out pages and return a row for each."""
    sheets = sample_sheets(settings.pages, settings.seed)
    progress("drafting")
    drafter(sheets[0].page)  # the first one pays for what is made but once
    drafts = [drafter(sheet.page) for sheet in sheets]

    def arm(name: str) -> Arm:
        read = models.reader(name)
        given = drafts if is_drafted(name) else [None] * len(drafts)
        return Arm(name, lambda index: read(sheets[index], given[index]), mode_of(name))

    arms = [arm(name) for name in models.names()]
    measured = measure(arms, len(sheets), settings.repeats, progress)
    check(models, sheets, measured)
    seconds = [draft.seconds for draft in drafts]
    return [arm_row(each, measured[0], sheets, seconds, settings.seed) for each in measured]


def check(models: ParseModels, sheets: Sequence[Sheet], measured: Sequence[ArmSamples]) -> None:
    """Note the parity of every run of the exact arms with plain decoding's first."""
    for index, sheet in enumerate(sheets):
        plain: Any = measured[0].samples[index][0]
        for arm in measured:
            if arm.arm.mode == EXACT:
                runs: Any = arm.samples[index]
                arm.parity += [models.parity(sheet, plain, run) for run in runs]


def arm_row(
    arm: ArmSamples, plain: ArmSamples, sheets: Sequence[Sheet], drafter: Sequence[float], seed: int
) -> Data:
    """Return the row of an arm over all pages, with `by_kind` inside.

    Pages that plain decoding or the arm itself did not bring to an end count for nothing but
    `truncated`, which names them.

    Args:
        arm: its runs, `PageRun`s.
        plain: those of plain decoding.
        sheets: the pages.
        drafter: seconds that a draft of each page took.
        seed: of the bootstrap over pages.
    """
    pages = [_Page(*each) for each in zip(sheets, arm.samples, plain.samples, drafter, strict=True)]
    counted = [page for page in pages if not page.first.truncated and not page.base.truncated]
    figures: Data = {
        "method": arm.arm.name,
        "mode": arm.arm.mode,
        "pages": len(counted),
        "truncated": [page.sheet.number for page in pages if page not in counted],
        "identical": sum(all(run.is_same(page.base) for run in page.runs) for page in pages),
        "compared": len(pages),
        "parity": verdict_of(arm.parity) if arm.arm.mode == EXACT else None,
    }
    parts = {kind: [page for page in counted if kind in page.sheet.kinds] for kind in KINDS}

    def of(part: list[_Page]) -> Data:
        is_shown = part and not arm.is_red
        return _counts(part) | (_speeds(part, arm.arm.name, seed) if is_shown else {})

    by_kind = [{"kind": kind, "pages": len(part), **of(part)} for kind, part in parts.items()]
    return figures | of(counted) | {"by_kind": by_kind}


class _Page:
    """The runs of an arm, and of plain decoding, on one page."""

    def __init__(self, sheet: Sheet, runs: Any, plain: Any, drafter: float) -> None:
        self.sheet, self.drafter = sheet, drafter
        self.runs: list[PageRun] = runs
        self.plain: list[PageRun] = plain
        self.first, self.base = self.runs[0], self.plain[0]

    def seconds(self, kind: str, name: str) -> float:
        """Return the seconds of an arm, or of plain decoding, on the page.

        `decode` is in decoding loops alone, those of stage 1 included, and leaves drafting out;
        `drafted` is the paper's (eq. 12): it adds all that is made for the draft's sake (the
        drafter, stage 1 with its crops' prefill, a draft model's prefill); `e2e` is from picture
        to Markdown, the drafter before it and hidden behind nothing (eq. 13).
        """
        runs = self.plain if name == "plain" else self.runs
        drafter = self.drafter if is_drafted(name) else 0.0
        if kind == "e2e":
            return median(run.e2e_seconds for run in runs) + drafter
        decode = median(run.decode_seconds for run in runs)
        if kind == "decode":
            return decode
        return decode + median(run.drafting_seconds for run in runs) + drafter


def _counts(pages: Sequence[_Page]) -> Data:
    firsts = [page.first for page in pages]
    stats = [run.stats for run in firsts if run.stats is not None]
    regions = [each for run in firsts for each in run.regions]
    forwards = [run.forwards for run in firsts if run.forwards is not None]
    tokens, count = sum(run.decode_tokens for run in firsts), len(firsts)
    is_known = bool(firsts) and len(forwards) == count
    return {
        "tokens": tokens,
        "forwards": sum(forwards) / count if is_known else None,
        "tokens_a_forward": tokens / sum(forwards) if is_known else None,
        "region_forwards": sum(each.nfe for each in regions) / count if firsts else None,
        "aal": _share(stats, "num_spec_steps"),
        "aal_regions": _share(regions, "num_spec_steps"),
        "path_rate": _share(stats, "num_draft_levels"),
    }


def _share(stats: Sequence[Any], steps: str) -> float | None:
    """Return accepted draft tokens over all pages together: a verification step (eq. 14), or of
    those that the deepest path of each tree offered."""
    total = sum(getattr(each, steps) for each in stats)
    return sum(each.num_accepted_draft_tokens for each in stats) / total if total else None


def _speeds(pages: Sequence[_Page], name: str, seed: int) -> Data:
    figures: Data = {}
    pairs = [(page.base.decode_tokens, page.first.decode_tokens) for page in pages]
    for speed, kind in SPEEDS.items():
        # A lossy text that ends early is no faster for it: in decoding, times of a token are
        # compared.
        counts = pairs if kind == "decode" else [(1, 1)] * len(pages)
        plain_tokens, tokens = zip(*counts, strict=True)
        base, seconds = ([page.seconds(kind, each) for page in pages] for each in ("plain", name))
        made = quotient((base, plain_tokens), (seconds, tokens), seed)
        figures[speed], figures[f"{speed}_interval"] = made["value"], made["interval"]
    count = len(pages)
    making = [median(run.making_seconds for run in page.runs) for page in pages]
    drafter = [page.drafter for page in pages] if is_drafted(name) else []
    return figures | {
        "seconds_a_page": sum(page.seconds("e2e", name) for page in pages) / count,
        "draft_seconds_a_page": (sum(making) + sum(drafter)) / count,
        "decode_seconds_a_page": sum(page.seconds("decode", name) for page in pages) / count,
    }
