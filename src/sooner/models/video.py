"""Video-language models: LLaVA-OneVision, Qwen2.5-VL, Qwen3-VL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..engine.interface import Prompt
from .base import Adapter, Packing

BETWEEN = -1
"""Label of a video token that belongs to no frame, such as a newline."""

PLACES, FEATURES = "visual_pos_masks", "deepstack_visual_embeds"
"""DeepStack's arguments: which tokens get features, `[rows, padded]` bool, and for each layer those
of all rows one behind the other, `[visual tokens, hidden]`."""


def grid_frames(inputs: Mapping[str, Any], config: Any) -> Tensor:
    """Returns frames of videos described by `video_grid_thw` (Qwen-VL), `[rows, padded]`.

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
    """Returns frames of videos `[videos, frames, 3, height, width]`, all alike (LLaVA-OneVision).

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
        return numbers  # no videos, or ones without metadata
    begin, shifted = 0, []
    for label in labels:
        shifted.append(torch.where(label == BETWEEN, BETWEEN, label + begin))
        begin += int(label.max()) + 2  # a gap between two videos
    numbers[spots] = torch.cat(shifted).to(ids)
    return numbers


class LlavaOnevision(Adapter):
    """The adapter that gives every token one running position, visual ones included."""

    model_types = ("llava_onevision",)

    def video_frames(self, inputs: Mapping[str, Any]) -> Tensor:
        return pixel_frames(inputs, self.config)


class Qwen25VL(Adapter):
    """Three position axes; a generated token has the same value on each."""

    model_types = ("qwen2_5_vl",)
    mrope = True

    def video_frames(self, inputs: Mapping[str, Any]) -> Tensor:
        return grid_frames(inputs, self.config)


class DeepStack(Adapter):
    """Adds features of a tower's inner layers to the decoder's first layers (Meng et al. 2024,
    DeepStack); they belong to the prompt alone, so they ride along with the prefill."""

    def prompt_extras(self, arguments: dict[str, Any], packed: Packing) -> dict[str, Any]:
        features = arguments.get(FEATURES)
        if features is None:
            return {}
        # Features are listed row by row in token order, which packing keeps.
        mask = packed(arguments[PLACES]) & packed.inside
        return {PLACES: mask, FEATURES: features}

    def repeat_extras(self, prompt: Prompt, copies: int) -> dict[str, Any]:
        if FEATURES not in prompt.extras:
            return {}
        mask = prompt.extras[PLACES]
        counts = mask.sum(1).tolist()
        features = [
            torch.cat([row for row in feature.split(counts) for _ in range(copies)])
            for feature in prompt.extras[FEATURES]
        ]
        return {PLACES: mask.repeat_interleave(copies, 0), FEATURES: features}

    def prune_extras(self, prompt: Prompt, keep: Tensor, packed: Packing) -> dict[str, Any]:
        if FEATURES not in prompt.extras:
            return {}
        mask = prompt.extras[PLACES]
        left = keep[mask]  # [visual tokens of all rows]
        features = [feature[left] for feature in prompt.extras[FEATURES]]
        return {PLACES: packed(mask) & packed.inside, FEATURES: features}


class Qwen3VL(DeepStack, Qwen25VL):
    """The adapter that is Qwen2.5-VL's with DeepStack."""

    model_types = ("qwen3_vl",)
