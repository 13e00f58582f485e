"""Pages a second with many under way at once: what drafts are still worth in a full batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, median
from typing import Any

import numpy as np

from sooner.documents import PageDraft
from sooner.documents.drafters import PageDrafter
from sooner.tasks.parse import ConcurrentParser, ParsedPage
from sooner.tasks.parse.result import LENGTH

from .arms import Spoken, Stable
from .settings import ParseBenchSettings
from .sheets import Sheet, sample_sheets
from .speed import VERDICTS, verdict

Progress = Callable[[str], None]
Data = dict[str, Any]
Tokens = dict[int, list[int]]
GARBAGE = "hsd-page-garbage"
STAGES = {"plain": None, "hsd-page": "page", "hsd": "both", GARBAGE: "page"}
"""The arms, and which stages verify; the drafts of the last one are words that no page has."""

Drafts = Mapping[str, Mapping[int, PageDraft | None]]
"""By arm and page."""


@dataclass
class _Course:
    """One arm with so many pages under way, all repeats of it.

    Attributes:
        seconds: of each repeat, from the first page's submission to the last one's end.
        cpu_seconds: of this process meanwhile, which other work on the machine disturbs less.
        said: of the last repeat, by page.
        rounds, row_rounds: of all repeats, and the rows in them.
        forwards: of the last repeat's pages, stage 1's and prefills among them.
    """

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    output: dict[int, Spoken] = field(default_factory=dict)
    rounds: int = 0
    row_rounds: int = 0
    forwards: int = 0


def clients(
    settings: ParseBenchSettings, stable: Stable, drafter: PageDrafter, progress: Progress
) -> Data:
    """Parse the same pages with 1, 2, 4, ... under way, plainly and with drafts.

    Drafts are made beforehand: what is measured is the target's side, over one continuous engine.
    Every repeat has a parser of its own, warmed up by as many pages as are under way, so that
    batches are as full and costs as known as in a long run.

    Returns:
        `rows`, one for each number of clients and arm, among them `one by one`, a page at a time
        by `PageParser`; `draft_seconds`, of a page.
    """
    sheets = sample_sheets(1 + settings.client_pages, "arms", settings.seed)[1:]
    progress("clients: drafting")
    drafted = {sheet.number: drafter(sheet.page) for sheet in sheets}
    rng = np.random.default_rng([settings.seed, len(sheets)])
    drafts: dict[str, dict[int, PageDraft | None]] = {name: {**drafted} for name in STAGES}
    drafts["plain"] = dict.fromkeys(drafted)
    drafts[GARBAGE] = {number: garbage(draft, rng) for number, draft in drafted.items()}
    plain = {sheet.number: stable.plainly([sheet])[0] for sheet in sheets}
    rows = _sequential(stable, sheets, drafts, plain, settings, progress)
    for count in settings.clients:
        courses: dict[str, _Course] = {name: _Course() for name in STAGES}
        for repeat in range(settings.repeats):
            names = list(STAGES)[repeat % len(STAGES) :] + list(STAGES)[: repeat % len(STAGES)]
            for name in names:
                progress(f"clients: {name}, {count} under way")
                _run(stable, name, count, sheets, drafts[name], courses[name])
        rows += [
            {"clients": count, **_row(stable, name, sheets, courses, plain)} for name in STAGES
        ]
    return {
        "pages": len(sheets),
        "draft_seconds": mean(draft.seconds for draft in drafted.values()),
        "rows": rows,
    }


def _sequential(
    stable: Stable,
    sheets: Sequence[Sheet],
    drafts: Drafts,
    plain: dict[int, Spoken],
    settings: ParseBenchSettings,
    progress: Progress,
) -> list[Data]:
    courses: dict[str, _Course] = {name: _Course() for name in STAGES}
    for name in STAGES:
        progress(f"clients: {name}, one by one")
        arm_drafts = drafts[name]
        arm = stable.contender("hsd-page" if name == GARBAGE else name)
        arm.parse(sheets[0], arm_drafts[sheets[0].number])
        for _ in range(settings.repeats):
            course, began, spent = courses[name], time.perf_counter(), time.process_time()
            for sheet in sheets:
                course.output[sheet.number] = arm.parse(sheet, arm_drafts[sheet.number])
            course.seconds.append(time.perf_counter() - began)
            course.cpu_seconds.append(time.process_time() - spent)
        course.forwards = sum(spoken.forwards or 0 for spoken in course.output.values())
    return [{"clients": None, **_row(stable, name, sheets, courses, plain)} for name in STAGES]


def _run(
    stable: Stable,
    name: str,
    count: int,
    sheets: Sequence[Sheet],
    drafts: Mapping[int, PageDraft | None],
    course: _Course,
) -> None:
    """One repeat of an arm."""
    stages = STAGES[name]
    settings = stable.parser(stages=stages or "page").settings
    with ConcurrentParser(
        stable.pair, settings, pages_in_flight=count, has_drafts=stages is not None
    ) as parser:

        def parse(some: Sequence[Sheet]) -> list[ParsedPage]:
            futures = [parser.submit(sheet.page, drafts[sheet.number]) for sheet in some]
            return [future.result() for future in futures]

        parse(sheets[:count])
        tokens = _overheard(parser)
        rounds = _counted(parser)
        began, spent = time.perf_counter(), time.process_time()
        parsed = parse(sheets)
        course.seconds.append(time.perf_counter() - began)
        course.cpu_seconds.append(time.process_time() - spent)
    course.rounds += len(rounds)
    course.row_rounds += sum(rounds)
    course.forwards = sum(stage.steps for page in parsed for stage in page.stages.values())
    for sheet, page in zip(sheets, parsed, strict=True):
        stopped = page.truncated not in (None, LENGTH)
        course.output[sheet.number] = Spoken(
            page.raw, None if stopped else tokens[sheet.number], page.truncated, 0.0, 0.0
        )


def _overheard(parser: ConcurrentParser) -> Tokens:
    """Ids of each page from now on, by its number: a parser says texts, and ids are what exactness
    is about."""
    tokens: Tokens = {}
    parse = parser.parser.parse

    async def listened(page: Any, draft: Any, decoder: Any) -> ParsedPage:
        decode = decoder.decode

        async def recorded(requests: Any) -> Any:
            results = await decode(requests)
            if requests[0].stage == "page":
                tokens[page.number] = results[0].rows[0].tokens
            return results

        decoder.decode = recorded
        return await parse(page, draft, decoder)

    parser.parser.parse = listened  # type: ignore[method-assign]
    return tokens


def _counted(parser: ConcurrentParser) -> list[int]:
    """Rows of every round from now on."""
    engine, rows = parser.engine, list[int]()
    real = engine._running.round

    def counting() -> None:
        assert engine.batch is not None
        rows.append(len(engine.batch.rows.active))
        real()

    engine._running.round = counting  # type: ignore[method-assign]
    return rows


def _row(
    stable: Stable,
    name: str,
    sheets: Sequence[Sheet],
    courses: dict[str, _Course],
    plain: dict[int, Spoken],
) -> Data:
    course, against = courses[name], courses["plain"]
    verdicts = {
        sheet.number: verdict(stable, sheet, plain[sheet.number], course.output[sheet.number])
        for sheet in sheets
    }
    worst = next(result for result in VERDICTS if result in verdicts.values())
    return {
        "method": name,
        "mode": "exact",
        "verdict": worst,
        "seconds": course.seconds,
        "cpu_seconds": course.cpu_seconds,
        "pages_per_second": len(sheets) / median(course.seconds),
        "over_plain": _over(against.seconds, course.seconds),
        "cpu_over_plain": _over(against.cpu_seconds, course.cpu_seconds),
        "forwards_a_page": course.forwards / len(sheets),
        "rounds": course.rounds,
        "rows_a_round": course.row_rounds / course.rounds if course.rounds else None,
        "identical": sum(result == "identical" for result in verdicts.values()),
        "ties": [number for number, result in verdicts.items() if result == "tie"],
        "bugs": [number for number, result in verdicts.items() if result == "bug"],
    }


def _over(plainly: Sequence[float], drafted: Sequence[float]) -> float:
    return median(
        plain_seconds / other for plain_seconds, other in zip(plainly, drafted, strict=True)
    )


RARE = np.array(list("jqvwxz"))
"""Letters of words that no page has."""


def garbage(draft: PageDraft, rng: np.random.Generator) -> PageDraft:
    """Return the same regions with words that no page has."""
    regions = [
        # How sure the drafter was of the text that it read says nothing about this one.
        replace(
            region,
            drafts=[
                " ".join("".join(rng.choice(RARE, 5)) for _ in text.split())
                for text in region.drafts
            ],
            confidence=None,
        )
        for region in draft.regions
    ]
    return replace(draft, regions=regions)
