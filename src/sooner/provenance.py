"""Where a result comes from: the revision of the source tree, and versions."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("sooner", "torch", "torchvision", "transformers", "tokenizers", "av", "numpy")

RESULTS = "docs/results/"
"""Folder of written results, their pages and figures, which no measurement reads."""


@dataclass(frozen=True)
class Revision:
    """The source tree that a process runs.

    Attributes:
        commit: its revision, `None` outside a repository.
        is_dirty: tracked files differ from it, others than results.
    """

    commit: str | None
    is_dirty: bool


@functools.cache
def revision() -> Revision:
    """Returns the tree as it was when the process first asked: a bench does before it measures.

    What a run writes at its end, or another wrote before it, does not make it dirty.
    """
    others = ":/", f":(top,exclude){RESULTS}"
    changes = _git("status", "--porcelain", "--untracked-files=no", "--no-renames", "--", *others)
    return Revision(_git("rev-parse", "HEAD"), bool(changes))


def versions() -> dict[str, str | None]:
    """Returns the versions of Python and of the packages that decide what comes out."""
    return {"python": platform.python_version(), **{name: installed(name) for name in PACKAGES}}


def _git(*arguments: str) -> str | None:
    """Returns a git answer about the source tree, or `None` outside one."""
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.rstrip("\n")


def installed(name: str) -> str | None:
    """Returns the version of a package; `None` if it is not there."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
