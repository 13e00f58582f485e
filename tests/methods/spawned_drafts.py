"""Runs with a draft in a process of its own, and what is left of such processes."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import sooner
import tiny

FAMILY = "llava_onevision"
NEW = 24


def generate(
    draft: sooner.StandingDraft, kind: str = "video", rows: int = 1, **options: Any
) -> Any:
    method = sooner.ParallelVLM(
        draft.draft,
        num_draft_tokens=6,
        min_visual=0,
        standing=draft,
        prune=options.pop("prune", 0.5),
    )
    return run(method, FAMILY, kind, rows, **options)


def run(method: sooner.Method, family: str, kind: str, rows: int = 1, **options: Any) -> Any:
    options = {"max_new_tokens": NEW, "eos_token_id": None, "do_sample": False, **options}
    return sooner.generate(tiny.model(family), tiny.inputs(family, kind, rows), method, **options)


def in_shm(process: int | str) -> set[str]:
    """Names in /dev/shm that a process holds, open or mapped; those of an OpenMP left out."""
    links = (Path(f"/proc/{process}/fd")).iterdir()
    opened = {os.readlink(path) for path in links if path.is_symlink()}
    mapped = {line.split()[-1] for line in Path(f"/proc/{process}/maps").read_text().splitlines()}
    return {path for path in opened | mapped if re.match("/dev/shm/(?!__KMP)", path)}


def pid(draft: sooner.StandingDraft) -> int:
    (worker,) = draft.workers
    return int(worker.runner.pid)
