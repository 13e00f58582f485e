"""The encoder that the codes are trained with: it sees one patch and nothing else.

Janus's autoencoder normalises every channel over the whole picture and attends to all of it, so
what a code means depends on the rest of the picture, and a decoder that draws code by code cannot
know the rest yet. Codes trained that way rebuilt pictures well, but drawings of them had blurred
shapes and colours. Here a code is a function of its own 4 x 4 pixels, by a layer of hidden units,
and `write_into` finds weights for Janus's own encoder that compute the same function:

- Residual branches and attention add nothing.
- Convolutions look at one pixel, those that halve at two by two.
- Hidden units come in pairs h and -h, which share a group of the last norm: its mean is zero.
  They are kept so small that the norm's epsilon outweighs their variance, and the norm is linear.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers.models.janus.modeling_janus import JanusVQVAE

from .architecture import PATCH, CodesShape

SMALL = 1 / 32  # what each of four convolutions shrinks; a power of two costs no precision
SHRINKS = 4


class PatchEncoder(nn.Module):
    """Pixels of a patch to its latent: linear, SiLU of each unit and its negative, linear."""

    def __init__(self, shape: CodesShape) -> None:
        super().__init__()
        units = shape.channels * shape.multiplier[-2]
        self.read = nn.Conv2d(3, units, PATCH, stride=PATCH, bias=False)
        self.bias = nn.Parameter(torch.empty(2 * units).uniform_(-1, 1))
        self.tell = nn.Conv2d(2 * units, shape.dim, 1)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Latents `[n, dim, side / 4, side / 4]` of pixels `[n, 3, side, side]` in -1..1."""
        read = self.read(pixels)  # [n, units, grid, grid]
        both = torch.stack([read, -read], dim=2).flatten(1, 2)  # h, -h, h, -h, ...
        return self.tell(functional.silu(both + self.bias[:, None, None]))


@torch.no_grad()
def write_into(model: JanusVQVAE, patches: PatchEncoder) -> None:
    """Give `model` an encoder that finds the latents of `patches`.

    Args:
        model: the autoencoder; its `encoder` and `quant_conv` are overwritten.
        patches: of the same `CodesShape`.
    """
    encoder: Any = model.encoder
    for weight in encoder.parameters():
        weight.zero_()
    for channel in range(3):
        encoder.conv_in.weight[channel, channel, 1, 1] = SMALL
    _write_halving(encoder.down[0].downsample.conv)
    _write_reading(encoder.down[1].downsample.conv, patches.read.weight)
    _write_pairs(encoder.down[2].block[0].nin_shortcut.weight)
    for name, module in encoder.named_modules():
        if isinstance(module, nn.GroupNorm) and name != "norm_out":
            module.weight.fill_(1.0)  # of branches that add nothing
    norm = encoder.norm_out
    norm.weight.fill_(norm.eps**0.5 / SMALL**SHRINKS)
    norm.bias.copy_(patches.bias)
    hidden = len(patches.bias)
    encoder.conv_out.weight[range(hidden), range(hidden), 1, 1] = 1.0
    projection: Any = patches.tell
    model.quant_conv.weight.zero_()
    model.quant_conv.weight[:, :hidden] = projection.weight
    shift: Any = model.quant_conv.bias
    shift.copy_(projection.bias)


def _write_halving(conv: nn.Conv2d) -> None:
    """Two by two pixels of three channels become twelve channels."""
    for down in range(2):
        for right in range(2):
            for channel in range(3):
                conv.weight[_slot(down, right, channel), channel, down, right] = SMALL


def _write_reading(conv: nn.Conv2d, read: torch.Tensor) -> None:
    """Two by two of the twelve channels become the units, by `read` `[units, 3, 4, 4]`."""
    for y in range(PATCH):
        for x in range(PATCH):
            for channel in range(3):
                slot = _slot(y % 2, x % 2, channel)
                conv.weight[:, slot, y // 2, x // 2] = SMALL * read[:, channel, y, x]


def _write_pairs(weight: torch.Tensor) -> None:
    """Each unit becomes itself and its negative; `weight` is `[2 * units, units, 1, 1]`."""
    for unit in range(weight.shape[1]):
        weight[2 * unit, unit] = SMALL
        weight[2 * unit + 1, unit] = -SMALL


def _slot(down: int, right: int, channel: int) -> int:
    return 6 * down + 3 * right + channel
