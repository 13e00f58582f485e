"""Auxiliary loss of the AR model: naming moving shapes; its heads are not saved.

Codes are of four pixels a side, so most of a shape's look alike wherever it goes: 3,800 steps on
codes alone left the way that shapes go near chance. A linear head in the decoder's middle names,
in every block that a shape passes through, what shape that is, which way it goes and how far its
centre lies from the block. It does not change the optimum of the prediction.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from . import world

REACH = 3  # blocks from a shape's centre to the farthest that it passes through within a group
ABSENT = -100
KINDS, COLOURS = list(world.SHAPES), list(world.COLOURS)
HEADS = (len(KINDS), len(COLOURS), 3, 3, 2 * REACH + 1, 2 * REACH + 1)


class MoverHeads(nn.Module):
    """Linear heads for kind, colour, heading (x, y) and distance from the centre (x, y)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, sum(HEADS))

    def forward(self, states: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of `states` [rows, n, width] for `labels` [rows, n, heads].

        Positions labelled `ABSENT` are skipped.
        """
        known = labels[..., 0] != ABSENT  # [rows, n]
        if not known.any():
            return states.sum() * 0
        logits = self.linear(states[known].float()).split(HEADS, -1)
        pairs = zip(logits, labels[known].long().unbind(-1), strict=True)
        return torch.stack([functional.cross_entropy(*pair) for pair in pairs]).mean()


class Listener:
    """A forward hook that keeps a layer's last output."""

    def __init__(self, layer: nn.Module) -> None:
        self.states = torch.empty(0)
        layer.register_forward_hook(self._keep)

    def _keep(self, layer: nn.Module, inputs: object, output: torch.Tensor) -> None:
        self.states = output


def label(
    clip: world.MotionClip, shape: tuple[int, int, int], passed: Sequence[torch.Tensor]
) -> torch.Tensor:
    """What is to be named in each block of a clip: int8 [t, h, w, heads].

    Args:
        shape: (t, h, w) of the clip's codes.
        passed: the blocks that each of its shapes passes through, bool [t, h, w].
    """
    frames, rows, columns = shape
    group = (world.FRAMES - 1) // (frames - 1)
    height, width = world.HEIGHT // rows, world.WIDTH // columns
    labels = torch.full((*shape, len(HEADS)), ABSENT, dtype=torch.int8)
    for mover, blocks in zip(clip.movers, passed, strict=True):  # later ones pass in front
        for latent, row, column in blocks.nonzero().tolist():
            (x, y), (right, down) = mover.at(latent * group), mover.heading(latent * group)
            away = column - x // width, row - y // height
            labels[latent, row, column] = torch.tensor([
                KINDS.index(mover.kind), COLOURS.index(mover.colour), right + 1, down + 1,
                *(min(max(blocks_off, -REACH), REACH) + REACH for blocks_off in away),
            ])  # fmt: skip
    return labels
