"""The layouts of a batch: of an embedded prompt, or of what a family's forward was called with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ...decoding.interface import Prompt
from ...models import Adapter
from ..modality import IMAGE, PADDING, TEXT, VIDEO, Layout


def of_prompt(prompt: Prompt) -> list[Layout]:
    """Of each row of a packed prompt."""
    return [Layout.of(prompt, row) for row in range(prompt.rows)]


def of_call(adapter: Adapter, inputs: Mapping[str, Any]) -> list[Layout] | None:
    """Of each row of a padded batch, padding where it is.

    Args:
        inputs: the arguments of the family's forward.

    Returns:
        Nothing where they do not tell: embeddings instead of ids, or a mask that is no padding.
    """
    ids, mask = inputs.get("input_ids"), inputs.get("attention_mask")
    if ids is None or (mask is not None and tuple(mask.shape) != tuple(ids.shape)):
        return None
    real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.to(ids.device).bool()
    frames = adapter.video_frames(inputs)
    modality = torch.full_like(ids, TEXT)
    for token in adapter.visual_ids:
        modality[ids == token] = IMAGE
    modality[frames >= 0] = VIDEO
    modality[~real] = PADDING
    frames = frames.masked_fill(~real, -1)
    return [Layout(*row) for row in zip(modality, frames, strict=True)]
