"""LLaVA-OneVision: SigLIP features in place of placeholder tokens, plain 1-D RoPE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from .base import Adapter
from .frames import pixel_frames


class LlavaOnevision(Adapter):
    """One running position for every token, visual ones included."""

    model_types = ("llava_onevision",)

    def video_frames(self, inputs: Mapping[str, Any]) -> Tensor:
        return pixel_frames(inputs, self.config)
