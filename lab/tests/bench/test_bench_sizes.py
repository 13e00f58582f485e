"""What a default run of a bench plans to do ends within five minutes on two cores.

Each bench adds a function that plans its default run: seconds from the committed result, which was
measured on two cores, times how often its settings do the same. `--full` does more.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sooner_lab.bench.caption_settings import BATCHED, BenchSettings
from sooner_lab.bench.parallel.contenders import FORKED, OURS, contenders
from sooner_lab.bench.parallel.settings import ParallelSettings

RESULTS = Path(__file__).parents[3] / "docs" / "results"
LIMIT = 300.0
START = 15.0
"""Seconds to load libraries and models."""


def seconds_a_text(bench: str) -> dict[str, float]:
    """Seconds from a file to its text, by arm."""
    result = json.loads((RESULTS / f"{bench}.json").read_text())
    return {arm["method"]: arm["e2e_seconds"] / result["clips"] for arm in result["arms"]}


def caption_seconds(settings: BenchSettings) -> float:
    each = seconds_a_text("caption")
    texts = settings.clips * settings.repeats + 1  # and a warm-up
    total = START + texts * sum(each[name] for name in settings.arms)
    total += settings.clips * each["hf"]  # references
    if settings.batch:
        total += settings.clips * each["hf"]
        # A batch takes at most as long as its rows one by one.
        runs = settings.repeats + 1
        total += runs * settings.batch / 3 * sum(each[name] for name in BATCHED)
    if settings.memory:
        total += 2 * START + each["plain"] + each["speculative"]
    return total


def parallel_seconds(settings: ParallelSettings) -> float:
    each = seconds_a_text("parallel")
    each[FORKED] = each[OURS]
    total = START
    for one in contenders(settings):
        seconds = each.get(one.name, each[OURS])
        accepted = seconds / 2 if one.mode != "exact" or one.name == OURS else 0.0
        total += settings.clips * (settings.repeats * seconds + accepted)
        total += seconds / 2 if one.part != "sweep" else 0.0  # warm-up: a prefill and few tokens
    total += settings.clips * each["plain"] * 1.2
    return total


PLANNED: dict[str, Any] = {
    "caption": (caption_seconds, BenchSettings(), BenchSettings(clips=12, repeats=5)),
    "parallel": (
        parallel_seconds,
        ParallelSettings(),
        ParallelSettings(clips=12, repeats=3, all_cores=True),
    ),
}
"""By bench: seconds of settings, its default ones, and those of `--full`."""


@pytest.mark.parametrize("bench", PLANNED)
def test_a_default_run_ends_within_five_minutes(bench: str) -> None:
    seconds, default, full = PLANNED[bench]
    assert seconds(default) <= LIMIT
    assert seconds(full) > 2 * seconds(default)
