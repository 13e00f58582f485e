"""Pictures to codes and back, by a trained autoencoder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from transformers.models.janus.modeling_janus import JanusVQVAE


def to_pixels(drawn: Sequence[np.ndarray]) -> torch.Tensor:
    """uint8 pictures to what the autoencoder reads, `[n, 3, side, side]` in -1..1."""
    stacked = torch.from_numpy(np.stack(drawn))
    return stacked.permute(0, 3, 1, 2).contiguous().float() / 127.5 - 1


def encode(model: JanusVQVAE, pixels: torch.Tensor, batch: int = 16) -> torch.Tensor:
    """Codes of pictures in -1..1, `[n, tokens]`."""
    with torch.no_grad():
        made = [model.encode(some).image_tokens.view(len(some), -1) for some in pixels.split(batch)]
    return torch.cat(made)


def decode(model: JanusVQVAE, codes: torch.Tensor, batch: int = 16) -> torch.Tensor:
    """Pictures in 0..1 of codes `[n, tokens]`, `[n, 3, side, side]`."""
    with torch.no_grad():
        made = [model.decode(some) for some in codes.split(batch)]
    return (torch.cat(made) / 2 + 0.5).clamp(0, 1)
