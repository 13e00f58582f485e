"""Qwen3-VL: interleaved M-RoPE, and DeepStack features added in the first decoder layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..decoding.interface import Prompt
from .base import Adapter
from .frames import grid_frames
from .packing import Packing


class Qwen3VL(Adapter):
    """DeepStack belongs to the prompt alone, so it rides along with the prefill."""

    model_types = ("qwen3_vl",)
    mrope = True

    def video_frames(self, inputs: Mapping[str, Any]) -> Tensor:
        return grid_frames(inputs, self.config)

    def prompt_extras(self, arguments: dict[str, Any], packed: Packing) -> dict[str, Any]:
        features = arguments.get("deepstack_visual_embeds")
        if features is None:
            return {}
        # Features are listed row by row in token order, which packing keeps.
        mask = packed(arguments["visual_pos_masks"]) & packed.inside
        return {"visual_pos_masks": mask, "deepstack_visual_embeds": features}

    def repeat_extras(self, prompt: Prompt, copies: int) -> dict[str, Any]:
        if not prompt.extras:
            return {}
        mask = prompt.extras["visual_pos_masks"]
        counts = mask.sum(1).tolist()
        features = [
            torch.cat([row for row in feature.split(counts) for _ in range(copies)])
            for feature in prompt.extras["deepstack_visual_embeds"]
        ]
        return {
            "visual_pos_masks": mask.repeat_interleave(copies, 0),
            "deepstack_visual_embeds": features,
        }

    def prune_extras(self, prompt: Prompt, keep: Tensor, packed: Packing) -> dict[str, Any]:
        if not prompt.extras:
            return {}
        mask = prompt.extras["visual_pos_masks"]
        left = keep[mask]  # [visual tokens of all rows]
        features = [feature[left] for feature in prompt.extras["deepstack_visual_embeds"]]
        return {
            "visual_pos_masks": packed(mask) & packed.inside,
            "deepstack_visual_embeds": features,
        }
