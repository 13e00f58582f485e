"""Pages a second with many under way at once: what drafts are still worth in a full batch."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import mean, median
from typing import Any

import numpy as np

from sooner.documents import PageDraft
from sooner.documents.drafters import PageDrafter
from sooner.tasks.parse import ConcurrentParser, ParsedPage
from sooner.tasks.parse.result import LENGTH

from ..run import Arm, Data, Progress, TimedRun, measure, no_warm_up, verdict_of
from .arms import PageRun, ParseModels
from .settings import ParseBenchSettings
from .sheets import Sheet, sample_sheets

GARBAGE = "hsd-page-garbage"
STAGES = {"plain": None, "hsd-page": "page", "hsd": "both", GARBAGE: "page"}
"""The arms, and which stages verify; the drafts of the last one are words that no page has."""
RARE = np.array(list("jqvwxz"))
"""Letters of words that no page has."""

Drafts = Mapping[int, PageDraft | None]
"""By the number of a page."""


@dataclass(frozen=True)
class PagesRun(TimedRun):
    """All pages parsed once by an arm.

    Attributes:
        cpu_seconds: of this process meanwhile, which other work on the machine disturbs less.
        pages: what was read, in the order of the pages.
        forwards: of the pages, stage 1's and prefills among them.
    """

    cpu_seconds: float = 0.0
    pages: tuple[PageRun, ...] = ()
    forwards: int = 0


def clients(
    settings: ParseBenchSettings, models: ParseModels, drafter: PageDrafter, progress: Progress
) -> Data:
    """Parse the same pages one by one, and with 1, 2, 4, ... under way, plainly and with drafts.

    Drafts are made beforehand: what is measured is the target's side, over one continuous engine.
    Every run has a parser of its own, warmed up by as many pages as are under way, so that
    batches are as full and costs as known as in a long run.

    Returns:
        `rows`, one for each number of clients and arm; `draft_seconds`, of a page.
    """
    sheets = sample_sheets(1 + settings.client_pages, "arms", settings.seed)[1:]
    progress("clients: drafting")
    drafted = {sheet.number: drafter(sheet.page) for sheet in sheets}
    rng = np.random.default_rng([settings.seed, len(sheets)])
    drafts: dict[str, Drafts] = dict.fromkeys(STAGES, drafted)
    drafts["plain"] = dict.fromkeys(drafted)
    drafts[GARBAGE] = {number: garbage(draft, rng) for number, draft in drafted.items()}
    plain = [models.untimed(sheet) for sheet in sheets]
    arms = [
        Arm(
            f"{count} {name}",
            partial(_run, models, name, count, sheets, drafts[name]),
            warm_up=no_warm_up,
        )
        for count in (None, *settings.clients)
        for name in STAGES
    ]
    measured = measure(arms, 1, settings.repeats, progress)
    runs: dict[str, Any] = {each.arm.name: each.samples[0] for each in measured}
    rows = [
        {
            "clients": count,
            "method": name,
            **_row(models, sheets, plain, runs[f"{count} {name}"], runs[f"{count} plain"]),
        }
        for count in (None, *settings.clients)
        for name in STAGES
    ]
    seconds = mean(draft.seconds for draft in drafted.values())
    return {"pages": len(sheets), "draft_seconds": seconds, "rows": rows}


def _run(
    models: ParseModels,
    name: str,
    count: int | None,
    sheets: Sequence[Sheet],
    drafts: Drafts,
    index: int,
) -> PagesRun:
    """Parse all pages with `count` under way, `None` one by one; a few warm up the parser."""
    if count is None:
        read = models.reader("hsd-page" if name == GARBAGE else name)
        read(sheets[0], drafts[sheets[0].number])
        began, spent = time.perf_counter(), time.process_time()
        pages = [read(sheet, drafts[sheet.number]) for sheet in sheets]
        forwards = sum(page.forwards or 0 for page in pages)
    else:
        stages = STAGES[name]
        settings = models.parser(stages=stages or "page").settings
        with ConcurrentParser(
            models.pair, settings, pages_in_flight=count, has_drafts=stages is not None
        ) as parser:
            _parse(parser, sheets[:count], drafts)
            ids = _page_ids(parser)
            began, spent = time.perf_counter(), time.process_time()
            parsed = _parse(parser, sheets, drafts)
            pages = [
                _page_run(page, ids[sheet.number])
                for page, sheet in zip(parsed, sheets, strict=True)
            ]
        forwards = sum(stage.steps for page in parsed for stage in page.stages.values())
    seconds, cpu = time.perf_counter() - began, time.process_time() - spent
    tokens = [page.tokens[0] for page in pages if page.tokens]
    return PagesRun(
        tokens, seconds, seconds, sum(map(len, tokens)),
        cpu_seconds=cpu, pages=tuple(pages), forwards=forwards,
    )  # fmt: skip


def _parse(parser: ConcurrentParser, sheets: Sequence[Sheet], drafts: Drafts) -> list[ParsedPage]:
    futures = [parser.submit(sheet.page, drafts[sheet.number]) for sheet in sheets]
    return [future.result() for future in futures]


def _page_run(page: ParsedPage, ids: list[int]) -> PageRun:
    is_stopped = page.truncated not in (None, LENGTH)
    tokens = [] if is_stopped else [ids]
    return PageRun(tokens, 0.0, 0.0, len(ids), text=page.raw, truncated=page.truncated)


def _page_ids(parser: ConcurrentParser) -> dict[int, list[int]]:
    """Return a mapping that gets the ids of each page from now on, by its number: a parser returns
    texts, and ids are what exactness is about."""
    ids: dict[int, list[int]] = {}
    parse = parser.parser.parse

    async def recording(page: Any, draft: Any, decoder: Any) -> ParsedPage:
        decode = decoder.decode

        async def recorded(requests: Any) -> Any:
            results = await decode(requests)
            if requests[0].stage == "page":
                ids[page.number] = results[0].rows[0].tokens
            return results

        decoder.decode = recorded
        return await parse(page, draft, decoder)

    parser.parser.parse = recording  # type: ignore[method-assign]
    return ids


def _row(
    models: ParseModels,
    sheets: Sequence[Sheet],
    plain: Sequence[PageRun],
    runs: Sequence[PagesRun],
    base: Sequence[PagesRun],
) -> Data:
    parity = [
        models.parity(sheet, expected, page)
        for sheet, expected, page in zip(sheets, plain, runs[-1].pages, strict=True)
    ]
    numbers = {
        verdict: [
            sheet.number
            for sheet, each in zip(sheets, parity, strict=True)
            if each.verdict == verdict
        ]
        for verdict in ("identical", "tie", "bug")
    }
    pairs = list(zip(base, runs, strict=True))
    return {
        "mode": "exact",
        "verdict": verdict_of(parity),
        "seconds": [run.e2e_seconds for run in runs],
        "cpu_seconds": [run.cpu_seconds for run in runs],
        "pages_per_second": len(sheets) / median(run.e2e_seconds for run in runs),
        "over_plain": median(one.e2e_seconds / run.e2e_seconds for one, run in pairs),
        "cpu_over_plain": median(one.cpu_seconds / run.cpu_seconds for one, run in pairs),
        "forwards_a_page": runs[-1].forwards / len(sheets),
        "identical": len(numbers["identical"]),
        "ties": numbers["tie"],
        "bugs": numbers["bug"],
    }


def garbage(draft: PageDraft, rng: np.random.Generator) -> PageDraft:
    """Return the same regions with words that no page has."""

    def words(text: str) -> str:
        return " ".join("".join(rng.choice(RARE, 5)) for _ in text.split())

    regions = [
        # How sure the drafter was of the text that it read says nothing about this one.
        replace(region, drafts=[words(text) for text in region.drafts], confidence=None)
        for region in draft.regions
    ]
    return replace(draft, regions=regions)
