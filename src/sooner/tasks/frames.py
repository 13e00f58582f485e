"""Samples and decodes the frames of a video that a model sees, in one streaming pass."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
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
        pixels: uint8 `[frames, height, width, 3]`, RGB, turned as the file says.
        indices: which frames of the file these are.
        info: the file, with the damage that decoding found.
    """

    pixels: np.ndarray
    indices: list[int]
    info: VideoInfo


def read(info: VideoInfo, choose: Choose, progress: Progress = lambda done, total: None) -> Frames:
    """Decode the frames that `choose` picks.

    Decoding goes through the file once and stops behind the last wanted frame. If fewer frames
    decode than the file has, frames are chosen anew among those that do, provided that they are
    at least as many as were wanted.

    Raises:
        SoonerError: too few frames decode; says how many do.
    """
    indices = list(choose(info))
    frames, total, failed = _decode(info, indices, progress)
    if len(frames) < len(set(indices)):
        info = _shortened(info, total, len(indices))
        indices = list(choose(info))
        frames, _, failed = _decode(info, indices, progress)
    if failed and info.damage is None:
        info = replace(info, damage=f"{failed} damaged places were skipped")
    return Frames(np.stack([frames[index] for index in indices]), indices, info)


def _shortened(info: VideoInfo, total: int, count: int) -> VideoInfo:
    """Returns the same file, as far as it decodes."""
    if total < count:
        hint = f"use --frames {total}, or another copy" if total else "try another copy"
        raise SoonerError(
            f"'{info.path}' is damaged: {total} of {info.frames} frames decode, too few for the "
            f"{count} that the model samples; {hint}"
        )
    return replace(
        info,
        frames=total,
        seconds=info.seconds * total / info.frames,
        damage=f"only {total} of {info.frames} frames decode",
    )


def _decode(
    info: VideoInfo, indices: Sequence[int], progress: Progress
) -> tuple[dict[int, np.ndarray], int, int]:
    """Wanted frames by index, how many frames passed by, and how many packets failed."""
    left, last = set(indices), max(indices)
    frames: dict[int, np.ndarray] = {}
    passed = failed = 0
    with open_video(info.path) as (container, stream):
        for frame, broken in frames_of(container, stream):
            if passed in left:
                frames[passed] = _pixels(frame, info)
            passed, failed = passed + 1, broken
            progress(passed, last + 1)
            if passed > last:
                break
    return frames, passed, failed


def _pixels(frame: Any, info: VideoInfo) -> np.ndarray:
    """`[height, width, 3]` as shown; a frame of another size is scaled to the first one's."""
    turned = info.rotation % 180 != 0
    width, height = (info.height, info.width) if turned else (info.width, info.height)
    pixels = frame.to_ndarray(format="rgb24", width=width, height=height)
    return np.ascontiguousarray(np.rot90(pixels, round(info.rotation / 90)))
