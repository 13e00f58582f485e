"""Evenly spaced lines: grid heads, and the strided and fixed patterns of Sparse Transformers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..plane import Plane
from .base import Places, causal

if TYPE_CHECKING:
    from ..attention.backend import Backend
    from ..attention.partial import Partial, States


@dataclass(frozen=True, eq=False)
class GridIndex:
    """Lines that return with a stride (MMInference, algorithm 1 and figure 8).

    Query and key see each other if any of these holds:

    - `hline` and `frontier % stride == phase`: the query's class sees everything;
    - `vline` and `rank % stride == phase`: the key's class is seen by everything;
    - `slash` and `frontier % stride == rank % stride`: queries see their own class;
    - `segment` and both lie in the same stretch of `stride` ranks that begins at `phase`;
    - `rank < sink`, or `frontier - rank < local`.

    Grouped by class, each of the first three is a block of dense causal attention.

    Attributes: all are `[heads]`; `local` is at least 1, so that a query sees its frontier.
    """

    stride: Tensor
    phase: Tensor
    hline: Tensor
    vline: Tensor
    slash: Tensor
    segment: Tensor
    sink: Tensor
    local: Tensor

    @property
    def heads(self) -> int:
        return len(self.stride)

    def seen(self, head: int, plane: Plane, queries: Places = slice(None)) -> Tensor:
        frontier, rank, allowed = causal(plane, queries)
        stride, phase = int(self.stride[head]), int(self.phase[head])
        seen = (rank < self.sink[head]) | (rank > frontier - self.local[head])
        if self.hline[head]:
            seen |= frontier % stride == phase
        if self.vline[head]:
            seen |= rank % stride == phase
        if self.slash[head]:
            seen |= frontier % stride == rank % stride
        if self.segment[head]:
            seen |= (frontier - phase) // stride == (rank - phase) // stride
        return seen & allowed

    def pairs(self, plane: Plane) -> Tensor:
        """Query-key pairs that each head computes, exactly, `[heads]` int64.

        What a query sees is the ranks up to a sink, those from some rank on, and between the two
        the keys of one or two classes: all of these are counted without looking at a pair.
        """
        frontier = plane.frontier[plane.frontier >= 0]
        return torch.stack([self._counts(head, frontier).sum() for head in range(self.heads)])

    def _counts(self, head: int, frontier: Tensor) -> Tensor:
        """Keys that a head's queries see, `[queries]`."""
        stride, phase = int(self.stride[head]), int(self.phase[head])
        near = frontier - self.local[head] + 1  # first rank of the last stretch
        if self.segment[head]:
            near = torch.minimum(near, frontier - (frontier - phase) % stride)
        near = near.clamp(min=0)
        sink = torch.minimum(self.sink[head], near)
        found = sink + frontier + 1 - near

        def between(member: Tensor | int) -> Tensor:
            """Ranks of one class from `sink` up to `near`."""
            return (near - member + stride - 1) // stride - (sink - member + stride - 1) // stride

        own = frontier % stride
        if self.vline[head]:
            found = found + between(phase)
        if self.slash[head]:
            lies_on_it = (own == phase) & self.vline[head]
            found = found + torch.where(lies_on_it, 0, between(own))
        if self.hline[head]:
            found = torch.where(own == phase, frontier + 1, found)
        return found

    def run(
        self, backend: Backend, states: States, plane: Plane, heads: Tensor, into: Partial
    ) -> None:
        backend.grid(states, plane, self, heads, into)

    def take(self, heads: Tensor) -> GridIndex:
        return GridIndex(*(values[heads] for values in vars(self).values()))
