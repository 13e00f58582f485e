"""Frames of clips as the pixels that the tokenizer of the motion miniature reads."""

from __future__ import annotations

from torch import Tensor


def to_pixels(frames: Tensor) -> Tensor:
    """Return uint8 frames `[rows, frames, H, W, 3]` as pixels `[rows, 3, frames, H, W]`, ±1."""
    return frames.permute(0, 4, 1, 2, 3).float() / 127.5 - 1
