"""Frames and texts in any order, as a model's chat template and processor take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers.video_utils import VideoMetadata

from sooner.tasks.prompting import written

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
    return dict(processor(text=[render(processor, parts)], return_tensors="pt", **pixels))


def _metadata(videos: Sequence[np.ndarray], fps: float) -> list[VideoMetadata]:
    total, begin, metadata = sum(map(len, videos)), 0, []
    for video in videos:
        metadata.append(
            VideoMetadata(
                total_num_frames=total,
                fps=fps,
                width=video.shape[2],
                height=video.shape[1],
                duration=total / fps,
                video_backend="pyav",
                frames_indices=list(range(begin, begin + len(video))),
            )
        )
        begin += len(video)
    return metadata


def place(inputs: dict[str, Any], model: Any) -> dict[str, Any]:
    """The inputs on the model's device, pixels in its dtype."""
    device, dtype = model.get_input_embeddings().weight.device, model.dtype
    placed = dict(inputs)
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            is_pixels = name.startswith("pixel_values")
            placed[name] = value.to(device, dtype) if is_pixels else value.to(device)
    return placed
