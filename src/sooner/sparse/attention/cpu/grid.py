"""Grid heads: every class of ranks is a block of dense causal attention.

A pair may lie on several lines. It is computed with the first of these that it lies on: the
horizontal line of its query, the vertical line of its key, the slash line of its distance, and the
rest: sink, segment and nearest keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...pairs import GridIndex
from ...plane import Plane
from ..partial import Partial, States
from . import slash
from .canvas import Accumulator, HeadStates, parts
from .flash import additive, attend


@dataclass(frozen=True)
class HeadGrid:
    """The entry that one head has in a `GridIndex`."""

    stride: int
    phase: int
    hline: bool
    vline: bool
    slash: bool
    segment: bool
    sink: int
    local: int

    @property
    def near(self) -> int:
        """No pair of `local` and `segment` is further apart."""
        return max(self.local, self.stride if self.segment else 0)

    def rest(self, frontier: Tensor, rank: Tensor) -> Tensor:
        """Returns pairs of sink, segment and nearest keys that lie on no vertical and no slash
        line.
        """
        apart = frontier - rank
        seen = (rank < self.sink) | (apart < self.local)
        if self.segment:
            number = (frontier - self.phase).div(self.stride, rounding_mode="floor")
            seen |= number == (rank - self.phase).div(self.stride, rounding_mode="floor")
        if self.vline:
            seen &= rank % self.stride != self.phase
        if self.slash:
            seen &= apart % self.stride != 0
        return seen & (apart >= 0)


def grid(states: States, plane: Plane, index: GridIndex, heads: Tensor, into: Partial) -> None:
    """Attends to evenly spaced lines of a plane."""
    columns = [values.tolist() for values in vars(index).values()]
    for place, part, canvas in parts(states, plane, heads, into):
        spacing = HeadGrid(*(column[place] for column in columns))
        if spacing.vline:
            _vline(part, spacing, canvas)
        if spacing.slash:
            _slash(part, spacing, canvas)
        _rest(part, spacing, canvas)
        if spacing.hline:
            _hline(part, spacing, canvas)


def _vline(part: HeadStates, spacing: HeadGrid, canvas: Accumulator) -> None:
    """All queries against the keys of the phase's class."""
    first = int(torch.searchsorted(part.frontier, spacing.phase))
    counts = (part.frontier[first:] - spacing.phase) // spacing.stride + 1
    lines = slice(spacing.phase, None, spacing.stride)
    seen = canvas.rows(slice(first, None))
    for chunk, output, lse in part.stairs(slice(first, None), counts, lines).climb(1024):
        seen.rows(chunk).put(output[0, 0], lse[0, 0])


def _hline(part: HeadStates, spacing: HeadGrid, canvas: Accumulator) -> None:
    """The queries of the phase's class against all keys, in place of what they have seen so far."""
    which = (part.frontier % spacing.stride == spacing.phase).nonzero()[:, 0]
    stairs = part.stairs(which, part.frontier[which] + 1, slice(None))
    for chunk, output, lse in stairs.climb(max(16, 2048 // spacing.stride)):
        canvas.output[which[chunk]] = output[0, 0].float()
        canvas.lse[which[chunk]] = lse[0, 0]


def _slash(part: HeadStates, spacing: HeadGrid, canvas: Accumulator) -> None:
    """Every class against itself, but for the class that vertical or horizontal lines serve."""
    lone = spacing.phase if spacing.vline or spacing.hline else None
    if part.ramp:
        slash.ramp(part, spacing.stride, lone, canvas)
    else:
        slash.scattered(part, spacing.stride, lone, canvas)


def _rest(part: HeadStates, spacing: HeadGrid, canvas: Accumulator) -> None:
    """Sink, segment and nearest keys, where they lie on no line."""
    if spacing.slash and spacing.local <= 1 and not spacing.sink and not spacing.segment:
        return
    block = spacing.stride * -(-64 // spacing.stride) if spacing.stride <= 512 else 256
    for start in range(0, len(part), block):
        chunk = slice(start, start + block)
        _rest_of(part, spacing, chunk, canvas.rows(chunk))


def _rest_of(part: HeadStates, spacing: HeadGrid, chunk: slice, canvas: Accumulator) -> None:
    frontier = part.frontier[chunk]
    near = max(int(frontier[0]) - spacing.near + 1, 0)
    rank = torch.cat(
        [torch.arange(min(spacing.sink, near)), torch.arange(near, int(frontier[-1]) + 1)]
    )
    seen = spacing.rest(frontier[:, None], rank)
    mask = additive(seen, part.queries.dtype)
    output, lse = attend(
        part.queries[chunk][None, None],
        part.keys[rank][None, None],
        part.values[rank][None, None],
        part.scale,
        mask=mask,
    )
    canvas.merge(output[0, 0], lse[0, 0].masked_fill(~seen.any(1), -torch.inf))
