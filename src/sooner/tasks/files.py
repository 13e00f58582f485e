"""Finding input files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import SoonerError

VIDEOS = (
    *(".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".m2ts", ".mts"),
    *(".wmv", ".flv", ".3gp", ".ogv", ".gif"),
)
"""File names that a folder is searched for; a file named by itself may be called anything."""


def find(paths: Sequence[Path | str]) -> list[Path]:
    """The videos meant by `paths`: files as they are, folders searched to the bottom.

    Folders are listed in natural order (`clip2` before `clip10`); a file named twice is kept once.

    Raises:
        SoonerError: a path that does not exist, or a folder without videos.
    """
    found: dict[Path, None] = {}
    for path in map(Path, paths):
        found.update(dict.fromkeys(_inside(path) if path.is_dir() else [_existing(path)]))
    return list(found)


def _inside(folder: Path) -> list[Path]:
    videos = [
        path for path in folder.rglob("*") if path.suffix.lower() in VIDEOS and path.is_file()
    ]
    if not videos:
        raise SoonerError(f"folder '{folder}' has no videos; known are {', '.join(VIDEOS)}")
    return sorted(videos, key=natural)


def _existing(path: Path) -> Path:
    if not path.exists():
        raise SoonerError(f"file '{path}' does not exist; check the path")
    return path


def natural(path: Path) -> list[tuple[int, int | str]]:
    """Sort key in which digits count as numbers."""
    parts = re.split(r"(\d+)", str(path).lower())
    return [(0, int(part)) if part.isdigit() else (1, part) for part in parts]
