"""Qwen2.5-VL: M-RoPE, so positions go on from the largest of the prompt's, not from its length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from .base import Adapter
from .frames import grid_frames


class Qwen25VL(Adapter):
    """Three position axes; a generated token has the same value on each."""

    model_types = ("qwen2_5_vl",)
    mrope = True

    def video_frames(self, inputs: Mapping[str, Any]) -> Tensor:
        return grid_frames(inputs, self.config)
