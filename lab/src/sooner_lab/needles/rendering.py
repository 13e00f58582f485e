"""Frames and texts in any order, as a model's chat template and processor take and count them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sooner.tasks.frames import metadata
from sooner.tasks.prompting import bos_options, written
from sooner.tasks.video import VideoInfo

Part = np.ndarray | str
"""Frames, uint8 `[frames, height, width, 3]`, or a text."""

_FIRST, _SECOND = "first words", "second words"


def messages(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """One user message that shows the parts in order; videos without their pixels."""
    content = [
        {"type": "text", "text": part} if isinstance(part, str) else {"type": "video"}
        for part in parts
    ]
    return [{"role": "user", "content": content}]


def render(processor: Any, parts: Sequence[Part]) -> str:
    """The prompt, with the parts in their order.

    Some templates (LLaVA-OneVision's) put all pictures in front of all words. For those the parts
    are written, a line each, into one text with the family's placeholder for each video.

    Raises:
        SoonerError: the processor has no chat template.
    """
    if _is_plain(parts) or _keeps_order(processor):
        return written(processor, messages(parts))
    body = "\n".join(part if isinstance(part, str) else processor.video_token for part in parts)
    return written(processor, messages([body]))


def _is_plain(parts: Sequence[Part]) -> bool:
    """Videos and then words, which is the order of every template."""
    is_text = [isinstance(part, str) for part in parts]
    return is_text == sorted(is_text) and sum(is_text) <= 1


def _keeps_order(processor: Any) -> bool:
    video = np.zeros((1, 1, 1, 3), np.uint8)
    text = written(processor, messages([_FIRST, video, _SECOND]))
    return text.index(_FIRST) < text.index(processor.video_token) < text.index(_SECOND)


def process(processor: Any, parts: Sequence[Part], fps: float) -> dict[str, Any]:
    """The model's inputs: `input_ids [1, width]`, the mask and the pixels.

    All videos are pieces of one film, so their time stamps go on from one to the next.

    Args:
        fps: frames a second that the model is told.
    """
    videos = [part for part in parts if not isinstance(part, str)]
    pixels: dict[str, Any] = {}
    if videos:
        pixels = {
            "videos": [torch.from_numpy(np.ascontiguousarray(video)) for video in videos],
            "videos_kwargs": {
                "do_sample_frames": False,
                "input_data_format": "channels_last",
                "video_metadata": _metadata(videos, fps),
            },
        }
    text = render(processor, parts)
    return dict(
        processor(text=[text], return_tensors="pt", **pixels, **bos_options(processor, text))
    )


def _metadata(videos: Sequence[np.ndarray], fps: float) -> list[Any]:
    total, begin, described = sum(map(len, videos)), 0, []
    for video in videos:
        info = VideoInfo(Path(), total, fps, total / fps, video.shape[2], video.shape[1])
        described.append(metadata(info, list(range(begin, begin + len(video)))))
        begin += len(video)
    return described


class Counter:
    """Counts tokens; of videos, with blank ones that are processed once.

    Args:
        processor: the model's processor.
        side: height and width of the frames.
        fps: frames a second that the model is told.

    Attributes:
        group: frames that the family looks at together (its temporal patch).
    """

    def __init__(self, processor: Any, side: int, fps: float) -> None:
        self.processor, self.side, self.fps = processor, side, fps
        self._widths: dict[int, int] = {}
        self.group = int(getattr(processor.video_processor, "temporal_patch_size", None) or 1)

    def text(self, text: str) -> int:
        """Tokens of a text by itself."""
        return len(self.processor.tokenizer(text, add_special_tokens=False).input_ids)

    def prompt(self, text: str) -> int:
        """Tokens of a prompt of text alone, the chat template's included."""
        return self._width([text])

    def clip(self, frames: int) -> int:
        """Tokens that one more video of `frames` frames, at the beginning, adds to a prompt."""
        if frames not in self._widths:
            blank = np.zeros((frames, self.side, self.side, 3), np.uint8)
            self._widths[frames] = self._width([blank, "."]) - self._width(["."])
        return self._widths[frames]

    def _width(self, parts: list[Part]) -> int:
        return int(process(self.processor, parts, self.fps)["input_ids"].shape[1])
