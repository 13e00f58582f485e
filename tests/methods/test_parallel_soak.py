"""Run after run beside a draft, however each ends, leaves no process, descriptor, mapping or
thread."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import sooner
import tiny
from methods.children import children
from methods.parallel_runs import Unpicklable

FAMILY, NEW = "llama", 24
PLACES = ("standing", "spawned", "thread")
ENDS = ("done", "sampled", "unpicklable", "interrupted", "killed", "stopped")
STRUCK = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
"""Signals to the draft's process at a random moment; a spawned one, which takes seconds to start
anew, gets none."""
WITHIN = 0.08
"""Seconds in which most of a run's moments are."""


def resources() -> dict[str, int]:
    """Counts of what this process has: children, descriptors, shared mappings, threads."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {
        "children": len(children()),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "mappings": sum(line.split()[1].endswith("s") for line in maps),
        "threads": threading.active_count(),
    }


def own_processes() -> set[int]:
    """Process ids of this process's children; reaps none, so that any thread may look."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(pid) for path in lists for pid in path.read_text().split()}


class Runs:
    """Draws how runs go; `standing` and `spawned` are drafts for all of them."""

    def __init__(self, seed: int) -> None:
        self.random, self.draft = random.Random(seed), tiny.noisy(FAMILY)
        self.spawned = sooner.StandingDraft(self.draft, spawn=True)
        assert self.spawned.start() is None
        self.spared = own_processes()
        self.standing = sooner.StandingDraft(self.draft)
        self.inputs = tiny.inputs(FAMILY, "text", 2)
        self.plain = self.decode(None).sequences
        self.reports = 0  # of runs whose worker was struck

    def decode(self, method: sooner.Method | None, **options: Any) -> sooner.Generation:
        options = {"do_sample": False, **options}
        return sooner.generate(
            tiny.model(FAMILY), self.inputs, method, max_new_tokens=NEW, eos_token_id=None,
            **options,
        )  # fmt: skip

    def method(self, place: str) -> sooner.ParallelVLM:
        options: dict[str, Any] = {"placement": "thread"}
        if place != "thread":
            options = {"standing": self.spawned if place == "spawned" else self.standing}
        return sooner.ParallelVLM(self.draft, prune=0, **options)

    def strike(self, how: int) -> None:
        for pid in own_processes() - self.spared:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)

    def run(self, place: str, end: str) -> None:
        def interrupt(row: int, tokens: list[int], drafted: int) -> None:
            if self.random.random() < 0.1:
                raise KeyboardInterrupt

        options: dict[str, Any] = {}
        if end == "sampled":
            options = {"do_sample": True, "seed": self.random.randrange(100)}
        elif end == "unpicklable":
            options = {"logits_processor": [Unpicklable()]}
        elif end == "interrupted":
            options = {"on_tokens": interrupt}
        moment = self.random.uniform(0, WITHIN)
        timer = threading.Timer(moment, self.strike, [STRUCK.get(end, signal.SIGCONT)])
        timer.start()
        try:
            made = self.decode(self.method(place), **options)
        except KeyboardInterrupt:
            assert end == "interrupted"
            return
        finally:
            timer.cancel()
            timer.join()
        reports = ["the draft worker" in note for note in made.stats.notes]
        self.reports += any(reports)
        assert sum(reports) <= 1, (place, end)
        if end != "sampled":
            assert torch.equal(made.sequences, self.plain), (place, end)

    def close(self) -> None:
        self.standing.close()
        self.spawned.close()


@pytest.mark.parametrize(
    "count",
    [pytest.param(24, marks=pytest.mark.slow), pytest.param(500, marks=pytest.mark.soak)],
)
def test_no_run_leaves_anything(count: int) -> None:
    runs = Runs(seed=count)
    for place in PLACES:  # what torch and multiprocessing hold from the first run on
        runs.run(place, "sampled")
    runs.standing.close()
    before = resources()
    for number in range(count):
        place = PLACES[number % len(PLACES)]
        runs.run(place, runs.random.choice(ENDS))
        if number % 10 == 9 or count < 100:
            runs.standing.close()
            assert resources() == before, (number, place)
    assert runs.reports >= count / 50, "the moments missed the runs"
    runs.close()
    assert not children()
