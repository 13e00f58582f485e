"""Subtitles of a benchmark's videos: SRT files in folders or zip files."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path, PurePosixPath

from sooner.errors import SoonerError

_TIMES = re.compile(r"^\d+:\d\d:\d\d[,.]\d+ --> ")
_TAG = re.compile(r"<[^>]*>|\{\\[^}]*\}")


class Subtitles:
    """Finds the subtitles under a folder by the name of their video.

    Args:
        root: the benchmark's folder.
    """

    def __init__(self, root: Path) -> None:
        self.files = {path.stem.lower(): path for path in sorted(root.rglob("*.srt"))}
        self.members: dict[str, tuple[Path, str]] = {}
        for archive in sorted(root.rglob("*.zip")):
            for name in _names(archive):
                path = PurePosixPath(name)
                if path.suffix == ".srt" and not path.name.startswith("."):
                    self.members[path.stem.lower()] = (archive, name)

    def of(self, video: str) -> str | None:
        """The text, or `None` where a video has none."""
        stem = PurePosixPath(video).name.lower()
        stem = stem if stem in self.files or stem in self.members else PurePosixPath(stem).stem
        if stem in self.files:
            return plain(self.files[stem].read_text(encoding="utf-8-sig", errors="replace"))
        if stem not in self.members:
            return None
        archive, name = self.members[stem]
        with zipfile.ZipFile(archive) as file:
            return plain(file.read(name).decode("utf-8-sig", errors="replace"))


def _names(archive: Path) -> list[str]:
    try:
        with zipfile.ZipFile(archive) as file:
            return file.namelist()
    except zipfile.BadZipFile as error:
        raise SoonerError(f"archive '{archive}' is damaged ({error}); fetch it again") from error


def plain(srt: str) -> str:
    """The spoken lines of an SRT text: no numbers, no times, no tags, nothing said twice in a row.

    A number by itself is a caption's number if a line of times follows, and speech otherwise.
    """
    lines = [_TAG.sub("", line).strip() for line in srt.replace("\r", "").split("\n")]
    told: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        is_number = line.isdigit() and _TIMES.match(following)
        if line and not _TIMES.match(line) and not is_number and line not in told[-1:]:
            told.append(line)
    return "\n".join(told)
