"""One rule for threads, in commands and benches: the draft process keeps a core of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sooner.cli.main import main
from sooner.methods import threads as rule
from sooner.methods.parallel import worker
from sooner.methods.threads import Threads
from sooner.tasks.loading import Loaded
from sooner.tasks.registry import plan_threads


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def machine(monkeypatch: pytest.MonkeyPatch, cores: int, threads: int | None = None) -> None:
    """A machine with so many cores, and as many torch threads unless it says otherwise."""
    for module in (rule, worker):
        monkeypatch.setattr(module, "cores", lambda: cores)
    torch.set_num_threads(threads or cores)


@pytest.mark.parametrize(
    ("cores", "requested", "small", "processes", "target", "draft"),
    [
        (2, None, True, 1, 1, 1),  # what --threads 1 gives
        (2, None, False, 1, 1, 1),
        (2, None, False, 0, 2, 0),
        (8, None, False, 1, 7, 1),
        (8, None, True, 1, 1, 1),
        (1, None, False, 1, 1, 1),
        (4, None, False, 6, 1, 1),
        (2, 2, True, 1, 2, 1),  # asked for is asked for
        (2, 3, False, 0, 3, 0),
    ],
)
def test_a_parallel_process_keeps_its_core(
    cores: int, requested: int | None, small: bool, processes: int, target: int, draft: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    machine(monkeypatch, cores)
    planned = Threads.plan(requested, is_miniature=small, processes=processes)
    assert (planned.target, planned.draft) == (target, draft)
    planned.apply()
    assert torch.get_num_threads() == target


def pair(draft: str | None, miniature: str | None = None) -> Any:
    device = None if draft is None else SimpleNamespace(device=torch.device(draft))
    loaded = None if device is None else Loaded("draft", device, None)
    return SimpleNamespace(draft=loaded, miniature=miniature)


@pytest.mark.parametrize(
    ("draft", "placement", "processes"),
    [
        ("cpu", "auto", 1), ("cpu", "process", 1), ("cpu", "thread", 0), ("cpu", None, 0),
        (None, "auto", 0), ("cuda", "auto", 0), ("cuda", "process", 0), ("cpu", "spawn", 1),
        ("cuda", "spawn", 0),
    ],
)  # fmt: skip
def test_only_a_forked_draft_takes_a_core(
    draft: str | None, placement: str | None, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, 4)
    planned = plan_threads(pair(draft), placement=placement)
    assert (planned.target, planned.draft) == (4 - processes, processes)
    assert plan_threads(pair(draft, "video"), placement=placement).target == 1


@pytest.mark.lab
def test_a_caption_records_its_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 2)
    for method, draft in (("parallel", 1), ("speculative", 0)):
        target = tmp_path / f"{method}.jsonl"
        with pytest.raises(SystemExit) as end:
            main(["caption", "--sample", "--method", method, "--max-new-tokens", "6", "-q",
                  "-o", str(target)])  # fmt: skip
        assert not end.value.code
        record = json.loads(target.read_text())
        assert (record["threads"], record["draft_threads"]) == (1, draft)
