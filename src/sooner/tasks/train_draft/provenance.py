"""How a head came about, for its config."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from ... import __version__
from .dataset import DataSet
from .settings import HeadTraining


def describe(
    data: Sequence[DataSet], settings: HeadTraining, seconds: float, acceptance: dict[str, Any]
) -> dict[str, Any]:
    """The recipe, what it was applied to, what it took, and how good the head is.

    Args:
        data: the recordings.
        settings: the recipe.
        seconds: of training.
        acceptance: on held-out samples.
    """
    return {
        "settings": settings.as_dict(),
        "data": [{"samples": len(one), "sha256": one.digest} for one in data],
        "seconds": round(seconds, 1),
        "acceptance": acceptance,
        "git": revision(),
        "versions": {
            "sooner": __version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "transformers": transformers.__version__,
        },
        "threads": torch.get_num_threads(),
    }


def revision() -> str | None:
    """The git revision of this package, `+` behind it if files differ; `None` outside of git."""
    home = Path(__file__).parent
    told = _git(home, "rev-parse", "--short", "HEAD")
    if told is None:
        return None
    return told + ("+" if _git(home, "status", "--porcelain", "--untracked-files=no") else "")


def _git(folder: Path, *words: str) -> str | None:
    try:
        run = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.strip() if run.returncode == 0 else None
