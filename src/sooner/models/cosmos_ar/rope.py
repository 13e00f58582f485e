"""Where a token lies in its clip, and what that does to queries, keys and layer inputs.

Tokens are the raster order of a box (frames, height, width), so a position is one number. Of the
`head_dim / 2` rotation planes of a head, the first third turns with the frame, the second with the
row and the last with the column; plane `i` pairs the channels `i` and `i + head_dim / 2`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .config import CosmosARConfig

ABSOLUTE_THETA = 10_000.0


def coordinates(positions: Tensor, latent_shape: tuple[int, int, int]) -> tuple[Tensor, ...]:
    """Frame, row and column of raster indices, each in the shape of `positions`.

    Indices behind the clip continue in further frames.
    """
    _, height, width = latent_shape
    inside = positions % (height * width)
    return positions // (height * width), inside // width, inside % width


def split(channels: int) -> tuple[int, int, int]:
    """Channels for frame, height and width: two even thirds, and what is left for the frame."""
    spatial = channels // 6 * 2
    return channels - 2 * spatial, spatial, spatial


def rotation(config: CosmosARConfig, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines for `positions [rows, entries]`.

    Returns:
        Two tensors `[rows, entries, head_dim]`, fp32.
    """
    assert config.head_dim is not None
    frames, height, _ = config.original_latent_shape  # YaRN takes the height for the width too
    parts = []
    for at, size, original in zip(
        coordinates(positions, config.latent_shape),
        split(config.head_dim),
        (frames, height, height),
        strict=True,
    ):
        turns = _stretched(config, _frequencies(size, config.rope_theta, at), original)
        parts.append(at[..., None] * turns)
    angles = torch.cat(parts, -1)  # [rows, entries, head_dim / 2]
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()


def rotate(states: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Turn queries or keys.

    Args:
        states: `[rows, heads, entries, head_dim]`.
        cosines, sines: from `rotation`, in the dtype of `states`.
    """
    first, second = states.chunk(2, -1)
    turned = torch.cat([-second, first], -1)
    return states * cosines[:, None] + turned * sines[:, None]


def absolute(config: CosmosARConfig, positions: Tensor) -> Tensor:
    """Sinusoids of frame, height and width for `positions [rows, entries]`.

    Returns:
        `[rows, entries, hidden]`, fp32: for each axis its sines, then its cosines.
    """
    parts = []
    for at, size in zip(
        coordinates(positions, config.latent_shape), split(config.hidden_size), strict=True
    ):
        angles = at[..., None] * _frequencies(size, ABSOLUTE_THETA, at)
        parts += [angles.sin(), angles.cos()]
    return torch.cat(parts, -1)


def _frequencies(channels: int, theta: float, like: Tensor) -> Tensor:
    """Radians a step, `[channels / 2]` fp32."""
    exponents = torch.arange(0, channels, 2, dtype=torch.float32, device=like.device) / channels
    return 1.0 / theta**exponents


def _stretched(config: CosmosARConfig, frequencies: Tensor, original: int) -> Tensor:
    """YaRN: divide slow frequencies by the scale, keep fast ones, blend between.

    Cosmos leaves out YaRN's correction of the attention temperature, so it is left out here.
    """
    if config.yarn_scale is None:
        return frequencies
    fast, slow = (
        2 * math.pi * turns / original for turns in (config.yarn_beta_fast, config.yarn_beta_slow)
    )
    kept = ((frequencies - slow) / (fast - slow)).clamp(0, 1)
    return frequencies * ((1 - kept) / config.yarn_scale + kept)
