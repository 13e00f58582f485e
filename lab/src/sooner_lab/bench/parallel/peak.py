"""Peak memory of an arm, its worker included, in a process that loads only what the arm needs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sooner.errors import SoonerError

from .settings import ParallelSettings

ARMS = ("plain", "speculative", "parallel")
"""The columns of table 6."""
NAP = 0.05
"""Seconds between two samples of the memory."""


def peak_memory(file: Path, settings: ParallelSettings) -> dict[str, int]:
    """Peak bytes of each of `ARMS` over one clip; empty where the system tells no shares.

    On a CPU a peak is the largest sum, over the process and its worker, of proportional set sizes:
    a page that both share counts once.
    """
    if not torch.cuda.is_available() and not Path("/proc/self/smaps_rollup").exists():
        return {}
    return {arm: _measured(file, settings, arm) for arm in ARMS}


def _measured(file: Path, settings: ParallelSettings, arm: str) -> int:
    request = {
        "arm": arm,
        "file": str(file),
        "frames": settings.shown_frames,
        "prune": settings.prune,
        "model": settings.model,
        "draft": settings.draft,
        "device": settings.device,
        "dtype": settings.dtype,
        "max_new_tokens": settings.max_new_tokens,
        "threads": torch.get_num_threads(),
    }
    command = [sys.executable, "-m", "sooner_lab.bench.parallel.peak", json.dumps(request)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SoonerError(f"memory run of '{arm}' failed: {done.stderr.strip()[-300:]}")
    return int(done.stdout.splitlines()[-1])


def peak(request: dict[str, Any]) -> int:
    """Run one arm once in this process; its peak in bytes."""
    from sooner.generation import generate
    from sooner.tasks.clip import prepare
    from sooner.tasks.loading import load_pair
    from sooner.tasks.registry import build_method
    from sooner.tasks.settings import CaptionSettings

    torch.set_num_threads(request["threads"])
    models = request["model"], request["draft"]
    pair = load_pair(*models, device=request["device"], dtype=request["dtype"])
    if request["arm"] == "plain":
        pair = replace(pair, draft=None)
    limit = request["max_new_tokens"]
    settings = CaptionSettings(
        request["arm"], prune=request["prune"], frames=request["frames"], max_new_tokens=limit
    )
    clip = prepare(request["file"], pair, settings)
    method = build_method(settings, pair, clip.draft_inputs)
    with polled() as seen:
        model, new = pair.target.model, clip.max_new_tokens
        generate(model, clip.inputs, method, max_new_tokens=new, do_sample=False)
    if model.device.type == "cuda":
        return sum(map(torch.cuda.max_memory_allocated, range(torch.cuda.device_count())))
    return max(seen)


@contextmanager
def polled() -> Iterator[list[int]]:
    """Bytes of this process and its children, sampled every `NAP` seconds."""
    seen = [tree_bytes()]
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(NAP):
            seen.append(tree_bytes())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def tree_bytes() -> int:
    """Proportional set sizes of this process and its children, in bytes; 0 if untold."""
    children = Path("/proc/self/task").glob("*/children")
    names = ["self", *(name for path in children for name in path.read_text().split())]
    return sum(map(_proportional, names))


def _proportional(process: str) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended meanwhile
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


if __name__ == "__main__":
    print(peak(json.loads(sys.argv[1])))
