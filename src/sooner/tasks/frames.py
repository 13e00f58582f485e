"""Samples and decodes the frames of a video that a model sees, in one streaming pass."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import SoonerError
from .video import VideoInfo, frames_of, open_video

if TYPE_CHECKING:
    from transformers.video_utils import VideoMetadata

DEFAULT_FRAMES = 32
"""For processors that would take every frame of a video; LLaVA-OneVision was trained on 32."""


@dataclass(frozen=True)
class Sampler:
    """Picks frame indices with a transformers video processor.

    Args:
        processor: the model's video processor; it is left as it is.
        frames: frames of each video, or `None`.
        fps: frames a second of video, or `None`. With neither, the processor decides; one that
            samples nothing by default gets `DEFAULT_FRAMES`.
    """

    processor: Any
    frames: int | None = None
    fps: float | None = None

    def __call__(self, info: VideoInfo) -> list[int]:
        """Returns indices below `info.frames` in order; all where there are fewer than wanted.

        Raises:
            SoonerError: the processor can't sample this video; in its own words.
        """
        usual = getattr(self.processor, "num_frames", None)
        rate = getattr(self.processor, "fps", None)
        count, fps = self.frames, self.fps if self.frames is None else None
        if count is None and fps is None:
            count, fps = usual, rate
            if fps is None:
                count = count or DEFAULT_FRAMES
        elif usual is not None and rate is not None:  # a rate, and at most so many frames
            count, fps = (usual, fps) if count is None else (count, count * info.fps / info.frames)
        group = getattr(self.processor, "temporal_patch_size", None) or 1
        if info.frames == 1:
            return [0] * group  # what such families do with a last frame that has no partner
        if count is not None and count < group:
            raise SoonerError(
                f"frames is {count}, but this model looks at {group} frames at a time; use "
                f"--frames {group}"
            )
        limit = count if fps is None else self.frames
        if limit is not None and limit >= info.frames:
            return list(range(info.frames))
        processor = copy.copy(self.processor)
        processor.num_frames, processor.fps = count, fps
        try:
            chosen = processor.sample_frames(metadata(info), num_frames=count, fps=fps)
        except (ValueError, ZeroDivisionError) as error:
            # Families with a least number of frames refuse shorter videos; those are shown whole.
            if info.frames <= (getattr(self.processor, "min_frames", None) or 4):
                return list(range(info.frames))
            option = f"frames={self.frames}" if self.frames is not None else f"fps={self.fps}"
            raise SoonerError(
                f"'{info.path}' of {info.frames} frames can't be sampled with {option}: {error}"
            ) from error
        return [int(index) for index in chosen]


def metadata(info: VideoInfo, indices: list[int] | None = None) -> VideoMetadata:
    """Returns the file as transformers' processors describe it."""
    from transformers.video_utils import VideoMetadata  # with torch, which decoding needs not

    return VideoMetadata(
        total_num_frames=info.frames, fps=info.fps, width=info.width, height=info.height,
        duration=info.seconds, video_backend="pyav", frames_indices=indices,
    )  # fmt: skip


Progress = Callable[[int, int], None]
"""Told `(frames decoded so far, frames to decode)`."""

Choose = Callable[[VideoInfo], Sequence[int]]
"""Picks ascending frame indices below `info.frames`."""


@dataclass(frozen=True)
class Frames:
    """Frames that were decoded.

    Attributes:
        pixels: uint8 `[frames, height, width, 3]`, RGB, turned as the file says; none of a video
            whose features alone stay.
        indices: which frames of the file these are.
        info: the file, with the damage that decoding found.
    """

    pixels: np.ndarray
    indices: list[int]
    info: VideoInfo


Consume = Callable[[VideoInfo, list[int], Iterator[np.ndarray]], np.ndarray]
"""Given a file, indices and, one by one, the frames of these, uint8 `[height, width, 3]`: returns
those that stay, `[frames, height, width, 3]`. A file that ends early has fewer frames."""


def _stacked(info: VideoInfo, indices: list[int], frames: Iterator[np.ndarray]) -> np.ndarray:
    pixels = np.empty((len(indices), info.height, info.width, 3), np.uint8)
    for store, frame in zip(pixels, frames, strict=False):
        store[:] = frame
    return pixels


def read(
    info: VideoInfo, choose: Choose, progress: Progress = lambda done, total: None,
    consume: Consume = _stacked,
) -> Frames:  # fmt: skip
    """Decode the frames that `choose` picks.

    Decoding goes through the file once and stops behind the last wanted frame; only frames that
    `consume` keeps stay in memory. If fewer frames decode than the file has, frames are chosen anew
    among those that do, provided that they are at least as many as were wanted.

    Raises:
        SoonerError: too few frames decode; says how many do.
    """
    decoding = _Decoding(info, choose, progress)
    pixels = consume(info, decoding.indices, iter(decoding))
    if decoding.missing:
        info = _shortened(info, decoding.passed, len(decoding.indices))
        decoding = _Decoding(info, choose, progress)
        pixels = consume(info, decoding.indices, iter(decoding))
    if decoding.failed and info.damage is None:
        info = replace(info, damage=f"{decoding.failed} damaged places were skipped")
    return Frames(pixels, decoding.indices, info)


def _shortened(info: VideoInfo, total: int, count: int) -> VideoInfo:
    """Returns the same file, as far as it decodes."""
    if total < count:
        hint = f"use --frames {total}, or another copy" if total else "try another copy"
        raise SoonerError(
            f"'{info.path}' is damaged: {total} of {info.frames} frames decode, too few for the "
            f"{count} that the model samples; {hint}"
        )
    return replace(
        info, frames=total, seconds=info.seconds * total / info.frames,
        damage=f"only {total} of {info.frames} frames decode",
    )  # fmt: skip


class _Decoding:
    """Yields frames at ascending indices; counts those that are missing, all that passed by, and
    packets that failed."""

    def __init__(self, info: VideoInfo, choose: Choose, progress: Progress) -> None:
        self.info, self.progress = info, progress
        self.indices = list(choose(info))
        self.missing, self.passed, self.failed = len(self.indices), 0, 0

    def __iter__(self) -> Iterator[np.ndarray]:
        counts, last = Counter(self.indices), max(self.indices)
        with open_video(self.info.path) as (container, stream):
            for frame, self.failed in frames_of(container, stream):
                if copies := counts[self.passed]:
                    self.missing -= copies
                    yield from [_pixels(frame, self.info)] * copies
                self.passed += 1
                self.progress(self.passed, last + 1)
                if self.passed > last:
                    break


def _pixels(frame: Any, info: VideoInfo) -> np.ndarray:
    """`[height, width, 3]` as shown; a frame of another size is scaled to the first one's."""
    turned = info.rotation % 180 != 0
    width, height = (info.height, info.width) if turned else (info.width, info.height)
    pixels = frame.to_ndarray(format="rgb24", width=width, height=height)
    return np.ascontiguousarray(np.rot90(pixels, round(info.rotation / 90)))
