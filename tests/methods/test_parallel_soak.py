"""Run after run beside a draft, however each ends, leaves no process, descriptor, mapping or
thread."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LogitsProcessor

import sooner
import tiny
from methods.children import children

FAMILY, NEW = "llama", 24
PLACES = ("forked", "standing", "spawned", "thread")
ENDS = ("done", "sampled", "unpicklable", "interrupted", "killed", "stopped")
STRUCK = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
"""Signals to the draft's process; a spawned one takes seconds to start anew, and gets none."""


class Unpicklable(LogitsProcessor):
    def __init__(self) -> None:
        self.scale = lambda scores: scores * 1.0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return self.scale(scores)


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


class Runs:
    """Draws how runs go; `standing` and `spawned` are drafts for all of them."""

    def __init__(self, seed: int) -> None:
        self.random, self.draft = random.Random(seed), tiny.noisy(FAMILY)
        self.standing = sooner.StandingDraft(self.draft)
        self.spawned = sooner.StandingDraft(self.draft, spawn=True)
        self.inputs = tiny.inputs(FAMILY, "text", 2)
        self.plain = self.decode(None).sequences

    def decode(self, method: sooner.Method | None, **options: Any) -> sooner.Generation:
        options = {"do_sample": False, **options}
        return sooner.generate(
            tiny.model(FAMILY), self.inputs, method, max_new_tokens=NEW, eos_token_id=None,
            **options,
        )  # fmt: skip

    def method(self, place: str) -> sooner.ParallelVLM:
        options: dict[str, Any] = {"placement": "thread" if place == "thread" else "process"}
        if place == "spawned":
            options = {"standing": self.spawned}
        elif place == "standing":
            options["standing"] = self.standing
        return sooner.ParallelVLM(self.draft, prune=0, **options)

    def processes(self) -> list[int]:
        """Draft processes that may be struck."""
        spawned = {task.runner.pid for task in self.spawned.tasks}
        return [child.pid for child in children() if child.pid not in spawned]

    def run(self, place: str, end: str) -> None:
        moment, generated = self.random.randrange(1, 2 * NEW), 0

        def strike(row: int, tokens: list[int], drafted: int) -> None:
            nonlocal generated
            before, generated = generated, generated + len(tokens)
            if not before < moment <= generated:
                return
            if end == "interrupted":
                raise KeyboardInterrupt
            for pid in self.processes() if end in STRUCK else ():
                os.kill(pid, STRUCK[end])

        options: dict[str, Any] = {"on_tokens": strike}
        if end == "sampled":
            options |= {"do_sample": True, "seed": self.random.randrange(100)}
        if end == "unpicklable":
            options["logits_processor"] = [Unpicklable()]
        if end == "interrupted":
            with pytest.raises(KeyboardInterrupt):
                self.decode(self.method(place), **options)
            return
        made = self.decode(self.method(place), **options)
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
    assert runs.spawned.start() is None
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
    runs.close()
    assert not children()
