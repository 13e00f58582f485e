"""Ids and accepted counts are those that were frozen (`frozen/write.py`), run by run.

Another processor may round another way, and a random model's near ties show it. So a run that
differs is skipped where HF's own ids differ from the frozen ones here too, and fails where they
don't.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from frozen.runs import PARTS, TextRun, counts, of_draft
from frozen.write import IDS

FROZEN = json.loads(IDS.read_text())


@pytest.fixture(autouse=True)
def _single_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def listed() -> list[Any]:
    return [
        pytest.param(part, run, id=f"{part}-{run}")
        for part, runs in PARTS.items()
        for run in runs()
    ]


@pytest.mark.parametrize(("part", "run"), listed())
def test_ids_and_counts_are_the_frozen_ones(part: str, run: TextRun) -> None:
    entry = FROZEN[part]["runs"][str(run)]
    ids, stats = run.decode(entry.get("end"))
    if ids == entry["ids"] and counts(stats) == entry["counts"]:
        return
    skip_elsewhere(run, entry)
    assert ids == entry["ids"]
    assert counts(stats) == entry["counts"], "forwards, draft tokens, accepted tokens -> row steps"


def skip_elsewhere(run: TextRun, entry: dict[str, Any]) -> None:
    """Skip a run where plain decoding by HF, of target or draft, differs from the frozen one."""
    if run.of_hf(entry.get("end")) != entry.get("hf", entry["ids"]):  # greedy ids are HF's
        pytest.skip("another processor or version: HF's own ids are not the frozen ones here")
    if of_draft(run.family) != FROZEN["drafts"][run.family]:
        pytest.skip("another processor or version: HF's own ids of the draft are not the frozen")


def test_every_run_is_frozen_and_nothing_else() -> None:
    for part, runs in PARTS.items():
        names = [str(run) for run in runs()]
        assert len(names) == len(set(names))
        assert set(names) == set(FROZEN[part]["runs"]), (
            f"PYTHONPATH=tests python -m frozen.write {part}"
        )


def test_another_window_shows_in_the_counts() -> None:
    """Ids of exact methods are HF's whatever is drafted; the counts tell engines apart."""
    run = next(run for run in PARTS["greedy"]() if "noisy-4" in str(run))
    entry = FROZEN["greedy"]["runs"][str(run)]
    ids, stats = replace(run, method="noisy-7").decode(entry.get("end"))
    assert ids == entry["ids"]
    assert counts(stats) != entry["counts"]
