"""Some frames of a video, decoded as they stream by; only those asked for are ever kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import SoonerError
from .video import VideoInfo, frames_of, open_video

Progress = Callable[[int, int], None]
"""Told `(frames decoded so far, frames to decode)`."""

Choose = Callable[[VideoInfo], Sequence[int]]
"""Picks ascending frame indices below `info.frames`."""


@dataclass(frozen=True)
class Frames:
    """Decoded frames.

    Attributes:
        pixels: uint8 `[frames, height, width, 3]`, RGB, turned as the file says.
        indices: which frames of the file these are.
        info: the file, with the damage that decoding found.
    """

    pixels: np.ndarray
    indices: list[int]
    info: VideoInfo


def read(info: VideoInfo, choose: Choose, progress: Progress | None = None) -> Frames:
    """Decode the frames that `choose` picks.

    Decoding goes through the file once and stops behind the last wanted frame. If fewer frames
    decode than the file has, frames are chosen anew among those that do, provided that they are
    at least as many as were wanted.

    Raises:
        SoonerError: too few frames decode; says how many do.
    """
    wanted = list(choose(info))
    found, total, failed = _decode(info, wanted, progress)
    if len(found) < len(set(wanted)):
        info = _shortened(info, total, len(wanted))
        wanted = list(choose(info))
        found, _, failed = _decode(info, wanted, progress)
    if len(found) < len(set(wanted)):
        raise SoonerError(f"'{info.path}' decodes differently each time; try another copy")
    if failed and info.damage is None:
        info = replace(info, damage=f"{failed} damaged places were skipped")
    return Frames(np.stack([found[index] for index in wanted]), wanted, info)


def _shortened(info: VideoInfo, total: int, wanted: int) -> VideoInfo:
    """The same file, as far as it decodes."""
    if total < wanted:
        hint = f"use --frames {total}, or another copy" if total else "try another copy"
        raise SoonerError(
            f"'{info.path}' is damaged: {total} of {info.frames} frames decode, too few for the "
            f"{wanted} that the model samples; {hint}"
        )
    return replace(
        info,
        frames=total,
        seconds=info.seconds * total / info.frames,
        damage=f"only {total} of {info.frames} frames decode",
    )


def _decode(
    info: VideoInfo, wanted: Sequence[int], progress: Progress | None
) -> tuple[dict[int, np.ndarray], int, int]:
    """Wanted frames by index, how many frames passed by, and how many packets failed."""
    left, last = set(wanted), max(wanted)
    found: dict[int, np.ndarray] = {}
    passed = failed = 0
    with open_video(info.path) as (container, stream):
        for frame, broken in frames_of(container, stream):
            if passed in left:
                found[passed] = _pixels(frame, info)
            passed, failed = passed + 1, broken
            if progress is not None:
                progress(passed, last + 1)
            if passed > last:
                break
    return found, passed, failed


def _pixels(frame: Any, info: VideoInfo) -> np.ndarray:
    """`[height, width, 3]` as shown; a frame of another size is scaled to the first one's."""
    turned = info.rotation % 180 != 0
    width, height = (info.height, info.width) if turned else (info.width, info.height)
    pixels = frame.to_ndarray(format="rgb24", width=width, height=height)
    return np.ascontiguousarray(np.rot90(pixels, round(info.rotation / 90)))
