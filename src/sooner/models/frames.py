"""Which video frame a token belongs to, from what the families' processors return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

BETWEEN = -1
"""Label of a video token that belongs to no frame, such as a newline."""


def grid_frames(inputs: Mapping[str, Any], config: Any) -> Tensor:
    """Frames of videos described by `video_grid_thw` (Qwen-VL), `[rows, padded]`.

    A frame is a temporal group: `h * w / merge^2` tokens for each of the `t` groups.
    """
    grids = inputs.get("video_grid_thw")
    merge = config.vision_config.spatial_merge_size
    labels = [
        torch.arange(time).repeat_interleave(height * width // merge**2)
        for time, height, width in (grids.tolist() if grids is not None else [])
    ]
    return number(inputs["input_ids"], config.video_token_id, labels)


def pixel_frames(inputs: Mapping[str, Any], config: Any) -> Tensor:
    """Frames of videos `[videos, frames, 3, height, width]`, all alike (LLaVA-OneVision).

    A video's tokens are those of its frames, and one newline at the end.
    """
    ids, pixels = inputs["input_ids"], inputs.get("pixel_values_videos")
    if pixels is None:
        return number(ids, config.video_token_id, [])
    videos, frames = pixels.shape[:2]
    tokens = int((ids == config.video_token_id).sum()) // videos
    label = torch.arange(frames).repeat_interleave((tokens - 1) // frames)
    rest = label.new_full((tokens - len(label),), BETWEEN)
    return number(ids, config.video_token_id, [torch.cat([label, rest])] * videos)


def number(ids: Tensor, token: int, labels: list[Tensor]) -> Tensor:
    """Put the frame labels of each video, in order, on the video tokens of a batch.

    Args:
        ids: `[rows, padded]`.
        token: the id of a video token.
        labels: for each video, the frame (from 0) of each of its tokens, or `BETWEEN`.
    """
    numbers = torch.full_like(ids, BETWEEN)
    spots = ids == token
    if not labels or sum(len(label) for label in labels) != int(spots.sum()):
        return numbers  # no videos, or ones that nobody described
    begin, shifted = 0, []
    for label in labels:
        shifted.append(torch.where(label == BETWEEN, BETWEEN, label + begin))
        begin += int(label.max()) + 2  # a gap between two videos
    numbers[spots] = torch.cat(shifted).to(ids)
    return numbers
