"""A spawned draft's process: other families, parents that are killed, scripts without a guard."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import method_matrix as matrix
import sooner
import tiny
from methods.children import children
from methods.spawned_drafts import FAMILY, NEW, generate, in_shm, pid, run

pytestmark = pytest.mark.slow


def live(connection: Any) -> None:
    """A process that decodes beside a draft until it is killed."""
    draft = tiny.noisy("llama")
    spawned = sooner.StandingDraft(draft, spawn=True)
    assert spawned.start() is None
    method = sooner.ParallelVLM(draft, prune=0, standing=spawned)
    connection.send(pid(spawned))
    while True:
        sooner.generate(
            tiny.model("llama"), tiny.inputs("llama", "text"), method, max_new_tokens=200,
            eos_token_id=None, do_sample=False,
        )  # fmt: skip


def test_it_ends_with_a_parent_that_is_killed() -> None:
    forking = multiprocessing.get_context("fork")
    ours, child_end = forking.Pipe()
    parent = forking.Process(target=live, args=(child_end,))
    parent.start()
    try:
        assert ours.poll(120)
        worker = ours.recv()
        time.sleep(0.2)  # in the midst of a run
        named = in_shm(parent.pid) | in_shm(worker)
    finally:
        parent.kill()
        parent.join()
    deadline = time.monotonic() + 10
    while is_alive(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(worker)
    assert not named


def is_alive(process: int) -> bool:
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl", "llama"])
def test_other_families_equal_hf(family: str, tmp_path: Path) -> None:
    """From a folder, by a method of its own, which keeps the process for its runs and ends it."""
    tiny.noisy(family).save_pretrained(tmp_path)
    draft = type(tiny.noisy(family)).from_pretrained(tmp_path, dtype=torch.float32)
    method = sooner.ParallelVLM(
        draft, prune=0.5, min_visual=0, placement="spawn", draft_device="cpu"
    )
    for kind in ("text",) if family in tiny.TEXT_FAMILIES else ("video", "images"):
        made = run(method, family, kind)
        assert torch.equal(made.sequences, matrix.reference(family, kind, 1, NEW))
        assert not made.stats.notes
        assert len(children()) == 1
    del method
    gc.collect()
    assert not children()


UNGUARDED = """
import sooner, tiny
print(sooner.StandingDraft(tiny.noisy("llama"), spawn=True).start())
"""


@pytest.mark.slow
def test_a_script_without_a_guard_gets_a_hint(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    paths = [str(Path(tiny.__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    completed = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert 'needs `if __name__ == "__main__":`' in completed.stdout


def test_killed_while_it_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    with sooner.StandingDraft(tiny.noisy(FAMILY), spawn=True) as spawned:
        killer = threading.Timer(1.0, lambda: os.kill(pid(spawned), signal.SIGKILL))
        killer.start()
        made = generate(spawned)
        killer.join()
        assert torch.equal(made.sequences, matrix.reference(FAMILY, "video", 1, NEW))
        assert "exit code -9" in made.stats.notes[0]
    assert not children()
