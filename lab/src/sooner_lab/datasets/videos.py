"""Videos of a benchmark by name: in folders, zip files, tar files, or tar files cut into parts."""

from __future__ import annotations

import io
import re
import shutil
import tarfile
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from sooner.errors import SoonerError
from sooner.io import replacing
from sooner.tasks.identity import VIDEOS

PART = re.compile(r"\.tar\.(part\.?)?[a-z0-9]{2,}$")
"""A tar that was split, such as `videos.tar.part.aa`; sorted names give the order."""


@dataclass(frozen=True)
class Place:
    """Where a video is: a file, or a member of an archive."""

    name: str
    file: Path | None = None
    archive: tuple[Path, ...] = ()


class VideoStore:
    """Finds the videos under a folder by what a table calls them.

    Archives are indexed once, by their tables of contents, and a member is unpacked when it is
    asked for, into `cache`.

    Args:
        root: the benchmark's folder.
        cache: where unpacked videos go.
    """

    def __init__(self, root: Path, cache: Path) -> None:
        self.root, self.cache = root, cache
        self.places: dict[str, list[Place]] = defaultdict(list)  # stem, lower case -> places
        for place in _places(root):
            self.places[PurePosixPath(place.name).stem.lower()].append(place)

    def locate(self, name: str) -> Path | None:
        """The video that a table calls `name`, with or without folders and ending.

        Of several files of that name the one is taken whose folders fit best; `None` if there is
        none.
        """
        path = PurePosixPath(name)
        # A name without a video ending may hold dots of its own, as YouTube ids do not but titles.
        stem = path.stem if path.suffix.lower() in VIDEOS else path.name
        places = self.places.get(stem.lower())
        if not places:
            return None
        best = max(places, key=lambda place: (_fit(place.name, path), -len(place.name)))
        return best.file if best.file is not None else self._unpack(best)

    def _unpack(self, place: Place) -> Path:
        parts = [part for part in PurePosixPath(place.name).parts if part not in ("/", "..")]
        target = self.cache.joinpath(*parts)
        if target.is_file():
            return target
        with replacing(target) as part, _member(place) as source, open(part, "wb") as sink:
            shutil.copyfileobj(source, sink)
        return target


def _fit(name: str, path: PurePosixPath) -> int:
    """How many of the asked folders, from the file upwards, a path has."""
    pairs = zip(reversed(PurePosixPath(name).parts[:-1]), reversed(path.parts[:-1]), strict=False)
    count = 0
    for part, other in pairs:
        if part != other:
            break
        count += 1
    return count


def _places(root: Path) -> Iterator[Place]:
    """Every video under a folder, in a fixed order."""
    parts: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(root.rglob("*")):
        if not path.is_file():
            continue
        name = path.relative_to(root).as_posix()
        if _is_video(name):
            yield Place(name, file=path)
        elif path.suffix == ".zip":
            yield from _listed((path,), _zip_names)
        elif PART.search(path.name):
            parts[PART.sub("", name)].append(path)
        elif path.name.endswith((".tar", ".tar.gz", ".tgz")):
            yield from _listed((path,), _tar_names)
    for paths in parts.values():
        yield from _listed(tuple(paths), _tar_names)


def _listed(
    archive: tuple[Path, ...], names: Callable[[tuple[Path, ...]], list[str]]
) -> Iterator[Place]:
    try:
        members = names(archive)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        raise SoonerError(f"archive '{archive[0]}' is damaged ({error}); fetch it again") from error
    yield from (Place(name, archive=archive) for name in members if _is_video(name))


def _zip_names(archive: tuple[Path, ...]) -> list[str]:
    with zipfile.ZipFile(archive[0]) as file:
        return file.namelist()


def _tar_names(archive: tuple[Path, ...]) -> list[str]:
    with _tar(archive) as file:
        return [member.name for member in file if member.isfile()]


@contextmanager
def _tar(archive: tuple[Path, ...]) -> Iterator[tarfile.TarFile]:
    with io.BufferedReader(Joined(archive)) as joined, tarfile.open(fileobj=joined) as file:
        yield file


@contextmanager
def _member(place: Place) -> Iterator[IO[bytes]]:
    if place.archive[0].suffix == ".zip":
        with zipfile.ZipFile(place.archive[0]) as file, file.open(place.name) as source:
            yield source
        return
    with _tar(place.archive) as tar:
        source_or_none = tar.extractfile(place.name)
        assert source_or_none is not None, "only files are listed"
        with source_or_none as source:
            yield source


class Joined(io.RawIOBase):
    """Several files read as one, with seeking, so that a cut tar need not be put together."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        super().__init__()
        self.files = [open(path, "rb") for path in paths]  # noqa: SIM115, closed in close()
        self.sizes = [path.stat().st_size for path in paths]
        self.at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: sum(self.sizes)}[whence]
        self.at = base + offset
        return self.at

    def readinto(self, buffer: Any) -> int:
        begin = 0
        for file, size in zip(self.files, self.sizes, strict=True):
            if self.at < begin + size:
                file.seek(self.at - begin)
                count = file.readinto(buffer)
                self.at += count
                return count
            begin += size
        return 0

    def close(self) -> None:
        for file in self.files:
            file.close()
        super().close()


def _is_video(name: str) -> bool:
    path = PurePosixPath(name)
    # Archives made on a Mac hold a `__MACOSX/._clip.mp4` beside each clip.
    return path.suffix.lower() in VIDEOS and not path.name.startswith(".")
