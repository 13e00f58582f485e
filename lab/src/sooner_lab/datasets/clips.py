"""Clips to continue: RealEstate-10k."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from urllib.parse import parse_qs, urlparse

from sooner.documents.inputs import natural
from sooner.errors import SoonerError
from sooner.tasks.imagine.files import StartClip

from .videos import VideoStore

MICROSECONDS, COLUMNS = 1e6, 19


def read_clips(root: Path, limit: int | None = None) -> list[StartClip] | None:
    """The clips of a folder laid out as RealEstate-10k; `None` if it is not.

    Such a folder holds text files, one a clip: a YouTube address, then a line with microseconds and
    18 camera numbers for each frame. Its videos lie anywhere in the same folder, cut to clips and
    named as the text files, or whole and named by their YouTube id. Clips without a video are left
    out. It is the entry point of the group `sooner.clips`.

    Args:
        root: the folder.
        limit: at most so many clips.

    Raises:
        SoonerError: the layout is right, but no clip has a video.
    """
    camera = [path for path in sorted(root.rglob("*.txt"), key=natural) if _is_camera(path)]
    if not camera:
        return None
    clips = list(islice(_real_estate(root, camera), limit))
    if not clips:
        raise SoonerError(
            f"'{root}' has {len(camera)} camera files of RealEstate-10k but the video of none; put "
            "videos beside them, named as the files or by their YouTube ids"
        )
    return clips


def _real_estate(root: Path, tables: list[Path]) -> Iterator[StartClip]:
    store = VideoStore(root, root / ".unpacked")
    for table in tables:
        lines = table.read_text().split("\n")
        cut = store.locate(table.stem)
        if cut is not None:
            yield StartClip(table.stem, cut)
        elif (whole := store.locate(_youtube_id(lines[0]))) is not None:
            yield StartClip(table.stem, whole, int(lines[1].split()[0]) / MICROSECONDS)


def _is_camera(path: Path) -> bool:
    """Whether a text file is a clip of RealEstate-10k, by its first two lines."""
    try:
        with open(path, encoding="utf-8") as file:
            head, first = file.readline(), file.readline().split()
    except (OSError, UnicodeDecodeError):
        return False
    return head.startswith("http") and len(first) == COLUMNS and first[0].isdigit()


def _youtube_id(address: str) -> str:
    """`v` of a watch address, or the last part of a short one."""
    parts = urlparse(address.strip())
    values = parse_qs(parts.query).get("v")
    return values[0] if values else parts.path.rstrip("/").split("/")[-1]
