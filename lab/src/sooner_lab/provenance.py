"""Provenance of a result: revision, versions, device and command line."""

from __future__ import annotations

import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from sooner.provenance import revision, versions


def provenance(device: str, dtype: str, seed: int, draft_threads: int = 0) -> dict[str, Any]:
    """Returns git revision, versions, device, dtype, threads, seed and command line of this
    process.

    Args:
        draft_threads: of a process that drafts beside this one.
    """
    tree = revision()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "git": tree.commit,
        "git_dirty": tree.is_dirty,
        "argv": ["sooner", *sys.argv[1:]],
        "python": platform.python_version(),
        "versions": versions(),
        "device": _device_name(device),
        "dtype": dtype,
        "threads": torch.get_num_threads(),
        "draft_threads": draft_threads,
        "seed": seed,
    }


def _device_name(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{models[0]} ({len(models)} cores)" if models else platform.processor()
