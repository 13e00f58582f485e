"""What a round costs beside the model: alignment, tree and mask, on a page with much to align."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from sooner.decoding.runner import ModelRunner
from sooner.decoding.tree import Tree
from sooner.methods import HSD
from sooner.methods.aligned import Experience
from sooner.methods.aligned.index import DraftIndex
from sooner.tasks.parse.contexts import page_drafts, pieces_of
from sooner.tasks.parse.decoding import decode_rows
from sooner.tasks.parse.result import LENGTH

from .arms import Stable
from .settings import ParseBenchSettings
from .sheets import oracle, sample_sheets

Progress = Callable[[str], None]
Data = dict[str, Any]
REGIONS, TOKENS = 60, 4000
"""Drafts of the page, and tokens in them together."""
SHEETS = 40
RUNS = 3


def overhead(settings: ParseBenchSettings, stable: Stable, progress: Progress) -> Data:
    """Seconds of a verifying round, and of its parts that are not the model's.

    One page is parsed on its true regions, between many others of other pages.
    """
    progress("overhead")
    drafts = _drafts(settings, stable)
    sheet = sample_sheets(1, "overhead", settings.seed)[0]
    inputs, limit = stable.inputs(sheet)
    experience = Experience()
    runs = []
    for _ in range(1 + RUNS):  # the first one warms up
        method = HSD([drafts], experience=experience)
        with timed(ModelRunner, "_mask") as masks, timed(Tree, "ancestors") as trees:
            (said,), stats = decode_rows(
                stable.model, inputs, method, limit, stable.plain.settings.repetition,
                set(stable.plain.eos),
            )  # fmt: skip
        if said.truncated in (None, LENGTH):
            runs.append((stats, sum(masks) + sum(trees), said))
    if len(runs) < 2:
        return {"note": "the page never ended"}
    return {
        **_told(runs[1:]),
        "index_seconds": _index(drafts),
        "regions": len(drafts),
        "draft_tokens": sum(map(len, drafts)),
        "plain_step_seconds": _plain_step(stable, inputs, limit),
    }


def _drafts(settings: ParseBenchSettings, stable: Stable) -> list[list[int]]:
    """The page's own regions and parts of others', `REGIONS` with `TOKENS` in all."""
    sheets = sample_sheets(SHEETS, "overhead", settings.seed)
    form, tokenizer = stable.plain.ask.form, stable.pair.target.tokenizer
    made = [
        [
            alternatives[0]
            for alternatives in page_drafts(
                tokenizer, pieces_of(oracle(sheet), form), form, stable.plain.eos
            )
        ]
        for sheet in sheets
    ]
    own = made[0]
    rest = [token for drafts in made[1:] for draft in drafts for token in draft]
    parts = max(REGIONS - len(own), 1)
    size = max((TOKENS - sum(map(len, own))) // parts, 1)
    others = [rest[begin : begin + size] for begin in range(0, parts * size, size)]
    return [*own, *(part for part in others if part)]


@contextmanager
def timed(owner: type, name: str) -> Iterator[list[float]]:
    """Seconds of every call of a method within the block."""
    seconds: list[float] = []
    method = getattr(owner, name)

    def call(*args: Any, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return method(*args, **options)
        finally:
            seconds.append(time.perf_counter() - began)

    setattr(owner, name, call)
    try:
        yield seconds
    finally:
        setattr(owner, name, method)


def _told(runs: list[Any]) -> Data:
    """Means of a round: of all, of alignment and tree (`draft`), of the mask."""
    rounds = sum(stats.num_spec_steps for stats, _, _ in runs)
    draft = sum(stats.seconds["draft"] for stats, _, _ in runs) / rounds
    mask = sum(seconds for _, seconds, _ in runs) / rounds
    step = sum(stats.decode_seconds for stats, _, _ in runs) / rounds
    accepted = sum(stats.num_accepted_draft_tokens for stats, _, _ in runs)
    return {
        "rounds": rounds // len(runs),
        "aal": accepted / rounds,
        "step_seconds": step,
        "draft_step_seconds": draft,
        "mask_step_seconds": mask,
        "share": (draft + mask) / step,
    }


def _index(drafts: list[list[int]]) -> float:
    """Seconds to index the drafts, once a page."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        DraftIndex(drafts)
        times.append(time.perf_counter() - began)
    return median(times)


def _plain_step(stable: Stable, inputs: dict[str, Any], limit: int) -> float | None:
    from sooner.methods import Autoregressive

    (said,), stats = decode_rows(
        stable.model, inputs, Autoregressive(), limit, stable.plain.settings.repetition,
        set(stable.plain.eos),
    )  # fmt: skip
    return stats.verify_median(1) if said.truncated in (None, LENGTH) else None
