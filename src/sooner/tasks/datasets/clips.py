"""Clips to continue: a file, a folder of videos, or RealEstate-10k."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import parse_qs, urlparse

from ...errors import SoonerError
from ..files import find, natural
from .videos import VideoStore

MICROSECONDS, COLUMNS = 1e6, 19


@dataclass(frozen=True)
class StartClip:
    """A clip of which the beginning is given.

    Attributes:
        id: its name.
        video: the file.
        seconds: where in the file the clip begins.
    """

    id: str
    video: Path
    seconds: float = 0.0


def load_clips(
    source: Path | str, limit: int | None = None, apart: Path | None = None
) -> list[StartClip]:
    """The clips of a file, of a folder of videos, or of a folder laid out as RealEstate-10k.

    RealEstate-10k is text files, one a clip: a YouTube address, then a line with microseconds and
    18 camera numbers for each frame. Its videos lie anywhere in the same folder, cut to clips and
    named as the text files, or whole and named by their YouTube id. Clips without a video are left
    out.

    Args:
        source: the file or folder.
        limit: at most so many.
        apart: a folder whose videos don't count, since results go there.

    Raises:
        SoonerError: nothing there, or no video for any of the clips; limits below 1.
    """
    if limit is not None and limit < 1:
        raise SoonerError(f"limit is {limit}; it must be a whole number of 1 or more")
    root = Path(source)
    tables = sorted(root.rglob("*.txt"), key=natural) if root.is_dir() else []
    camera = [path for path in tables if _is_camera(path)]
    if not camera:
        kept = (path for path in find([root]) if not _lies_in(path, apart))
        found = (StartClip(path.stem, path) for path in kept)
        return list(islice(found, limit))
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


def _lies_in(path: Path, folder: Path | None) -> bool:
    return folder is not None and path.resolve().is_relative_to(folder.resolve())


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
    told = parse_qs(parts.query).get("v")
    return told[0] if told else parts.path.rstrip("/").split("/")[-1]
