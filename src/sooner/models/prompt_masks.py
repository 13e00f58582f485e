"""Masks of a prompt that a model makes itself: where pictures, or all of it, see ahead."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import UnsupportedError
from .base import Packing

Masks = dict[str, Tensor]
"""By kind of layer, or under "" for all of them: `[rows, 1, width, width]`, as the model has it."""


def masks_of(mask: Any, rows: int, width: int) -> Masks | None:
    """Returns the four-dimensional masks that a decoder was called with; `None` for others.

    Args:
        mask: the decoder's `attention_mask`.
        rows, width: of the padded prompt.
    """
    masks = mask if isinstance(mask, dict) else {"": mask}
    present = {kind: entry for kind, entry in masks.items() if entry is not None}
    fits = all(
        isinstance(entry, Tensor) and entry.ndim == 4 and entry.shape[::2] == (rows, width)
        and entry.shape[1] == 1 and entry.shape[3] == width
        for entry in present.values()
    )  # fmt: skip
    return present if fits else None


def has_masks(mask: Any) -> bool:
    """Returns whether a model's forward hands its decoder masks that it made itself."""
    return isinstance(mask, dict) or (isinstance(mask, Tensor) and mask.ndim == 4)


def sees_ahead(masks: Masks, packed: Packing) -> bool:
    """Returns whether any real token sees one behind it. If none does, the mask that the decoder
    itself makes for the packed prompt is the same."""
    real = packed.inside[:, None, :, None] & packed.inside[:, None, None]  # [rows, 1, width, width]
    ahead = real & torch.ones_like(real).triu(1)
    results = packed_masks(masks, packed).values()
    seen = (mask if mask.dtype == torch.bool else mask == 0 for mask in results)
    return any(bool((mask & ahead.to(mask.device)).any()) for mask in seen)


def packed_masks(masks: Masks, packed: Packing) -> Masks:
    """Returns masks of some of the tokens."""
    return {kind: _packed(mask, packed) for kind, mask in masks.items()}


def handed(masks: Masks) -> Any:
    """Returns what the decoder takes as its `attention_mask`."""
    return masks.get("", masks)


def refuse_parts(model: Any) -> UnsupportedError:
    """Returns the error of a prompt that sees ahead and is asked for piece by piece."""
    return UnsupportedError(
        f"{type(model).__name__} lets tokens of this prompt see those behind them, so that it is "
        "prefilled as a whole; leave prefill_chunk_size unset"
    )


def _packed(mask: Tensor, packed: Packing) -> Tensor:
    """`[rows, 1, padded, padded]` to `[rows, 1, width, width]`; padding sees itself at least."""
    order = packed.order.to(mask.device)
    rows = torch.arange(len(mask), device=mask.device)[:, None, None]
    moved = mask[:, 0][rows, order[:, :, None], order[:, None]]
    diagonal = torch.eye(moved.shape[1], dtype=torch.bool, device=mask.device)
    is_seen = True if mask.dtype == torch.bool else 0.0
    return moved.masked_fill(diagonal, is_seen)[:, None]
