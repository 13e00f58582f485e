"""Tokens of frames and of text, as one model family's processor counts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sooner.tasks.prompting import video_tokens
from sooner.tasks.video import VideoInfo

from .rendering import Part, process


class Counter:
    """Counts without processing pixels, but for two tiny videos at the beginning.

    Args:
        processor: the model's processor.
        size: height and width of the frames.
        fps: frames a second that the model is told.

    Attributes:
        group: frames that the family looks at together (its temporal patch).
    """

    def __init__(self, processor: Any, size: tuple[int, int], fps: float) -> None:
        self.processor, self.size, self.fps = processor, size, fps
        self._widths: dict[int, int] = {}
        self._counts: dict[int, int | None] = {}
        self.group = int(getattr(processor.video_processor, "temporal_patch_size", None) or 1)

    def text(self, text: str) -> int:
        """Tokens of a text by itself."""
        return len(self.processor.tokenizer(text, add_special_tokens=False).input_ids)

    def prompt(self, text: str) -> int:
        """Tokens of a prompt of text alone, the chat template's included."""
        return self._width([text])

    def clip(self, frames: int) -> int:
        """Tokens that one more video of `frames` frames adds to a prompt.

        Time stamps are counted as those of the first seconds.
        """
        if frames <= 2 * self.group:
            return self._measured(frames)
        placeholders = self._placeholders(frames)
        if placeholders is None:
            return self._measured(frames)
        small = [self.group, 2 * self.group]
        low, high = (self._measured(count) - (self._placeholders(count) or 0) for count in small)
        return placeholders + low + (high - low) * (frames // self.group - 1)

    def _placeholders(self, frames: int) -> int | None:
        if frames not in self._counts:
            height, width = self.size
            info = VideoInfo(Path(), frames, self.fps, frames / self.fps, width, height)
            self._counts[frames] = video_tokens(self.processor, info, frames)
        return self._counts[frames]

    def _measured(self, frames: int) -> int:
        if frames not in self._widths:
            blank = np.zeros((frames, *self.size, 3), np.uint8)
            self._widths[frames] = self._width([blank, "."]) - self._width(["."])
        return self._widths[frames]

    def _width(self, parts: list[Part]) -> int:
        return int(process(self.processor, parts, self.fps)["input_ids"].shape[1])
