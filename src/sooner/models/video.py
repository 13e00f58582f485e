"""Video-language models: LLaVA-OneVision and its kin, Qwen2.5-VL, Qwen3-VL, SmolVLM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..engine.interface import Prompt
from .base import Adapter, Packing

BETWEEN = -1
"""Label of a video token that belongs to no frame, such as a newline."""

STACKS = {"deepstack_visual_embeds": "visual_pos_masks", "deepstack_features": "vision_mask"}
"""DeepStack's arguments as Qwen3-VL and Granite Vision 4 name them: for each layer the features of
all rows one behind the other, `[visual tokens, hidden]`, and which tokens get them."""

PER_LAYER = "per_layer_inputs"
"""Inputs of each layer that Gemma 3n and 4 make of ids, `[rows, tokens, layers, width]`."""

TOKENWISE = frozenset({PER_LAYER, "moe_mm_token_type_ids", *STACKS.values()})
"""Decoder arguments with an entry for each token of the prompt, `[rows, padded, ...]`, 0 for words.

ERNIE 4.5 VL sends what is no word to experts of its own.
"""


def grid_frames(inputs: Mapping[str, Any], config: Any) -> Tensor:
    """Returns frames of videos described by `video_grid_thw` (Qwen-VL), `[rows, padded]`.

    A frame is a temporal group: `h * w / merge^2` tokens for each of the `t` groups. HF's
    `generate` passes no grids; a frame then begins at the height and width of its video's first.
    """
    ids, grids = inputs["input_ids"], inputs.get("video_grid_thw")
    clips, axes = (inputs.get("mm_encoder_outputs") or {}).get("video"), inputs.get("position_ids")
    if grids is None and clips is not None and axes is not None and axes.ndim == 3:
        spots, (height, width) = ids == config.video_token_id, axes[-2:]
        start = (height * (spots & ~pad(spots, (1, -1)))).cummax(1).values  # [rows, padded]
        begins = ((height == start) & (width == start))[spots]  # [video tokens]
        videos = begins.split([*map(len, clips.pooler_output)])
        return number(ids, config.video_token_id, [video.cumsum(0) - 1 for video in videos])
    merge = config.vision_config.spatial_merge_size
    labels = [
        torch.arange(time).repeat_interleave(height * width // merge**2)
        for time, height, width in (grids.tolist() if grids is not None else [])
    ]
    return number(ids, config.video_token_id, labels)


def pixel_frames(inputs: Mapping[str, Any], config: Any) -> Tensor:
    """Returns frames of videos `[videos, frames, 3, height, width]`, all alike (LLaVA).

    A video's tokens are those of its frames, with newlines among them or one at the end; frames
    that the tower merges into a clip count as one.
    """
    ids, pixels = inputs["input_ids"], inputs.get("pixel_values_videos")
    if pixels is None and (encoded := inputs.get("mm_encoder_outputs", {}).get("video")) is None:
        return number(ids, config.video_token_id, [])
    videos = len(encoded.pooler_output if pixels is None else pixels)
    vision, tokens = config.vision_config, int((ids == config.video_token_id).sum()) // videos
    side = -(-(vision.image_size // vision.patch_size) // 2)  # of a pooled frame
    ends = not hasattr(config, "mm_newline_position")  # LLaVA-OneVision
    frames = (tokens - ends) // side**2 if pixels is None else pixels.shape[1]
    frames //= getattr(config, "clip_frames", 1)
    label = torch.arange(frames).repeat_interleave((tokens - ends) // frames)
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

    model_types = ("llava_onevision", "llava_video")
    frame_kind = "video"
    frames_end = 1  # a newline

    @property
    def body(self) -> Any:
        # LLaVA-Video embeds a video before its decoder's parent is called.
        return self.model if hasattr(self.config, "mm_newline_position") else super().body

    def video_frames(self, inputs: Mapping[str, Any]) -> Tensor:
        return pixel_frames(inputs, self.config)


class SmolVLM(Adapter):
    """The adapter whose videos are pictures, each between marks and behind its time stamp."""

    model_types = ("smolvlm",)
    frame_kind = "image"

    def video_frames(self, inputs: Mapping[str, Any]) -> Tensor:
        """Returns the number of the view of each token, `[rows, padded]`; a frame is a view, as a
        tile of a picture is: the inputs do not tell them apart."""
        visual = self.is_visual(inputs)
        begins = visual & ~pad(visual, (1, -1))
        return (begins.cumsum(1) - 1).masked_fill(~visual, BETWEEN)


class Qwen25VL(Adapter):
    """Three position axes; a generated token has the same value on each."""

    model_types = ("qwen2_5_vl",)
    mrope = True
    frame_kind = "video"  # the tower attends within a temporal group, or a window of it

    def video_frames(self, inputs: Mapping[str, Any]) -> Tensor:
        return grid_frames(inputs, self.config)


class DeepStack(Adapter):
    """Adds features of a tower's inner layers to the decoder's first layers (Meng et al. 2024,
    DeepStack); they belong to the prompt alone, so they ride along with the prefill, as do other
    arguments with an entry for each token."""

    def prompt_extras(self, arguments: dict[str, Any], packed: Packing) -> dict[str, Any]:
        present = {name: value for name, value in arguments.items() if value is not None}
        # Features are listed row by row in token order, which packing keeps.
        extras = {name: present[name] for name in STACKS.keys() & present.keys()}
        return extras | {n: packed.zeroed(present[n]) for n in TOKENWISE & present.keys()}

    def repeat_extras(self, prompt: Prompt, copies: int) -> dict[str, Any]:
        def copied(part: Tensor, counts: list[int]) -> Tensor:
            return torch.cat([row for row in part.split(counts) for _ in range(copies)])

        extras = {
            name: _each(prompt.extras[name], copied, mask.flatten(1).sum(1).tolist())
            for name, mask in _stacks(prompt)
        }
        for name in TOKENWISE & prompt.extras.keys():
            extras[name] = prompt.extras[name].repeat_interleave(copies, 0)
        return extras

    def prune_extras(self, prompt: Prompt, keep: Tensor, packed: Packing) -> dict[str, Any]:
        extras = {  # keep[mask]: [visual tokens of all rows]
            name: _each(prompt.extras[name], Tensor.__getitem__, keep[mask.flatten(1)])
            for name, mask in _stacks(prompt)
        }
        for name in TOKENWISE & prompt.extras.keys():
            extras[name] = packed.zeroed(prompt.extras[name])
        return extras


def _stacks(prompt: Prompt) -> list[tuple[str, Tensor]]:
    """Returns the names of a prompt's features, and which tokens they are of."""
    return [(name, prompt.extras[at]) for name, at in STACKS.items() if name in prompt.extras]


def _each(features: Any, change: Callable[[Tensor, Any], Tensor], by: Any) -> Any:
    """Returns the features of each layer, in a list or by its number, changed."""
    if isinstance(features, dict):
        return {layer: change(part, by) for layer, part in features.items()}
    return [change(part, by) for part in features]


class Qwen3VL(DeepStack, Qwen25VL):
    """The adapter that is Qwen2.5-VL's with DeepStack."""

    model_types = ("qwen3_vl",)
