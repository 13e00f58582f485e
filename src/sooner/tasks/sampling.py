"""Which frames of a video a model sees: those that its own processor would take."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from transformers.video_utils import VideoMetadata

from ..errors import SoonerError
from .video import VideoInfo

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
        """Indices below `info.frames` in order; all of them where fewer exist than are wanted.

        Raises:
            SoonerError: the processor can't sample this video; in its own words.
        """
        count, fps = self._request()
        group = getattr(self.processor, "temporal_patch_size", None) or 1
        if info.frames == 1:
            return [0] * group  # what such families do with a last frame that has no partner
        if count is not None and count < group:
            raise SoonerError(
                f"frames is {count}, but this model looks at {group} frames at a time; use "
                f"--frames {group}"
            )
        if count is not None and count >= info.frames:
            return list(range(info.frames))
        processor = copy.copy(self.processor)
        processor.num_frames, processor.fps = count, fps
        try:
            chosen = processor.sample_frames(metadata(info), num_frames=count, fps=fps)
        except (ValueError, ZeroDivisionError) as error:
            return self._all(info, error)
        return [int(index) for index in chosen]

    def _request(self) -> tuple[int | None, float | None]:
        """Frame count and rate that `sample_frames` is asked for; at most one of them."""
        if self.frames is not None:
            return self.frames, None
        if self.fps is not None:
            return None, self.fps
        count = getattr(self.processor, "num_frames", None)
        fps = getattr(self.processor, "fps", None) if count is None else None
        if count is None and fps is None:
            return DEFAULT_FRAMES, None
        return count, fps

    def _all(self, info: VideoInfo, error: Exception) -> list[int]:
        """Families with a least number of frames refuse shorter videos; those are shown whole."""
        if info.frames <= (getattr(self.processor, "min_frames", None) or 4):
            return list(range(info.frames))
        wanted = f"frames={self.frames}" if self.frames is not None else f"fps={self.fps}"
        raise SoonerError(
            f"'{info.path}' of {info.frames} frames can't be sampled with {wanted}: {error}"
        ) from error


def metadata(info: VideoInfo, indices: list[int] | None = None) -> VideoMetadata:
    """The file as transformers' processors describe it."""
    return VideoMetadata(
        total_num_frames=info.frames,
        fps=info.fps,
        width=info.width,
        height=info.height,
        duration=info.seconds,
        video_backend="pyav",
        frames_indices=indices,
    )
