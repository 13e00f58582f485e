"""A spawned draft process: exact, and gone however things end.

Starting one takes seconds, so tests share that of the module.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import method_matrix as matrix
import sooner
import tiny
from methods.children import children
from methods.spawned_drafts import FAMILY, NEW, generate, in_shm, pid, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def spawned() -> Iterator[sooner.StandingDraft]:
    with sooner.StandingDraft(tiny.noisy(FAMILY), spawn=True) as draft:
        assert draft.start() is None
        yield draft
    assert not children()


def test_every_run_equals_hf_in_the_same_process(spawned: sooner.StandingDraft) -> None:
    seen = set()
    for kind, rows, prune in (
        ("video", 1, 0.5), ("images", 3, 0.0), ("text", 2, 0.0), ("uneven", 5, 0.9),
    ):  # fmt: skip
        made = generate(spawned, kind, rows, prune=prune)
        assert torch.equal(made.sequences, matrix.reference(FAMILY, kind, rows, NEW))
        assert not made.stats.notes
        assert made.stats.draft_forwards > 0
        seen.add(pid(spawned))
    assert len(seen) == 1


def test_nothing_is_named_in_dev_shm(spawned: sooner.StandingDraft) -> None:
    """What has no name there can't be left there, whoever is killed."""
    names: set[str] = set()

    def look(*_: Any) -> None:
        names.update(in_shm(pid(spawned)), in_shm("self"))

    generate(spawned, on_tokens=look)
    assert not names


def test_stopped_it_is_left_until_it_goes_on_or_replaced(
    spawned: sooner.StandingDraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A moment's halt must not cost another load of the draft; the next run has another."""
    first, reference = pid(spawned), matrix.reference(FAMILY, "video", 1, NEW)
    os.kill(first, signal.SIGSTOP)
    for message in ("does not answer", "not done with an earlier run"):
        made = generate(spawned)
        assert torch.equal(made.sequences, reference)
        assert message in made.stats.notes[0]
    os.kill(first, signal.SIGCONT)
    deadline = time.monotonic() + 30
    while spawned._is_late() and time.monotonic() < deadline:
        time.sleep(0.01)
    made = generate(spawned)
    assert torch.equal(made.sequences, reference)
    assert not made.stats.notes
    assert pid(spawned) == first
    os.kill(first, signal.SIGSTOP)
    assert generate(spawned).stats.notes
    monkeypatch.setattr(spawned, "patience", 0.0)
    made = generate(spawned)
    assert torch.equal(made.sequences, reference)
    assert not made.stats.notes
    assert pid(spawned) != first


def test_killed_in_a_run_it_is_gone_and_reported(spawned: sooner.StandingDraft) -> None:
    spawned.start()
    long = 200
    plain = run(sooner.Autoregressive(), FAMILY, "video", max_new_tokens=long)
    killer = threading.Timer(0.05, os.kill, [pid(spawned), signal.SIGKILL])
    killer.start()
    made = generate(spawned, max_new_tokens=long, on_tokens=lambda *_: time.sleep(0.001))
    killer.join()
    assert torch.equal(made.sequences, plain.sequences)
    assert sum("exit code -9" in note for note in made.stats.notes) == 1
    assert not children()
