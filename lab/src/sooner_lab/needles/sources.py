"""Haystacks of a user's own: pictures, or videos."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from sooner.errors import SoonerError
from sooner.tasks.frames import read
from sooner.tasks.identity import VIDEOS, natural
from sooner.tasks.video import VideoInfo, probe

from ..worlds.video.world import sample_indices
from .haystack import Cut, Haystack

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
"""Endings of image files that a folder is searched for."""


@dataclass(frozen=True)
class Pictures:
    """A user's pictures in their order: arrays, or image files.

    Args:
        pictures: uint8 arrays `[height, width, 3]` or paths.
        size: height and width that all are scaled to; the first one's by default.
        repeat: begin again where there are too few, instead of refusing.

    Raises:
        SoonerError: no pictures.
    """

    pictures: Sequence[np.ndarray | Path]
    size: tuple[int, int] = (0, 0)
    repeat: bool = False

    def __post_init__(self) -> None:
        if len(self.pictures) == 0:
            raise SoonerError("the haystack has no pictures; give one or more")
        if self.size == (0, 0):
            first = self.pictures[0]
            shape = first.shape if isinstance(first, np.ndarray) else _open(first).size[::-1]
            object.__setattr__(self, "size", (int(shape[0]), int(shape[1])))

    @property
    def name(self) -> str:
        return f"pictures({len(self.pictures)})"

    def frames(self, count: int, cut: Cut, rng: np.random.Generator) -> np.ndarray:
        """The first `count` pictures.

        Raises:
            SoonerError: there are fewer.
        """
        total = len(self.pictures)
        if total < count and not self.repeat:
            raise SoonerError(
                f"the haystack has {total} pictures, but {count} frames are asked for; give more, "
                "a shorter length, or repeat=True"
            )
        return np.stack([_scaled(self.pictures[i % total], self.size) for i in range(count)])


@dataclass(frozen=True)
class Films:
    """A user's videos, one behind the other; frames are taken evenly from all of it.

    Args:
        infos: the files, as `tasks.video.probe` tells of them.
        size: height and width that all are scaled to; the first one's by default.
    """

    infos: tuple[VideoInfo, ...]
    size: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        if self.size == (0, 0):
            object.__setattr__(self, "size", (self.infos[0].height, self.infos[0].width))

    @property
    def name(self) -> str:
        return f"films({', '.join(info.path.name for info in self.infos)})"

    def frames(self, count: int, cut: Cut, rng: np.random.Generator) -> np.ndarray:
        """`count` frames, evenly.

        Raises:
            SoonerError: the videos have fewer.
        """
        total = sum(info.frames for info in self.infos)
        if total < count:
            raise SoonerError(
                f"the haystack's videos have {total} frames, but {count} are asked for; give more "
                "or a shorter length"
            )
        wanted, begin, parts = sample_indices(total, count), 0, []
        for info in self.infos:
            own = wanted[(wanted >= begin) & (wanted < begin + info.frames)] - begin
            begin += info.frames
            if len(own):
                parts.append(self._read(info, own.tolist()))
        return np.concatenate(parts)

    def _read(self, info: VideoInfo, own: list[int]) -> np.ndarray:
        pixels = read(info, lambda known: own).pixels
        return np.stack([_scaled(frame, self.size) for frame in pixels])


def open_haystack(paths: Sequence[Path | str], size: tuple[int, int] = (0, 0)) -> Haystack:
    """A haystack of image files, folders of them, or videos.

    Raises:
        SoonerError: a path that is not there, nothing usable, or images and videos mixed.
    """
    found = [file for path in map(Path, paths) for file in _files(path)]
    pictures = [file for file in found if file.suffix.lower() in PICTURES]
    if not found or 0 < len(pictures) < len(found):
        what = "both images and videos" if found else "neither images nor videos"
        raise SoonerError(f"haystack {', '.join(map(str, paths))}: {what}; give one kind")
    if pictures:
        return Pictures(pictures, size)
    return Films(tuple(probe(file) for file in found), size)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise SoonerError(f"haystack '{path}' does not exist; check the path")
    known = (*PICTURES, *VIDEOS)
    return sorted((file for file in path.rglob("*") if file.suffix.lower() in known), key=natural)


def _open(path: Path) -> Image.Image:
    try:
        return Image.open(path)
    except OSError as error:
        raise SoonerError(f"image '{path}' can't be read ({type(error).__name__})") from error


def _scaled(picture: np.ndarray | Path, size: tuple[int, int]) -> np.ndarray:
    image = Image.fromarray(picture) if isinstance(picture, np.ndarray) else _open(picture)
    image = image.convert("RGB")
    wanted = (size[1], size[0])
    return np.asarray(image if image.size == wanted else image.resize(wanted))


def scaled(frames: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Frames `[count, height, width, 3]` scaled to `size`."""
    return np.stack([_scaled(frame, size) for frame in frames])
