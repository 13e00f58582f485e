"""Evenly spaced lines: grid heads, and the strided and fixed patterns of Sparse Transformers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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

    def run(
        self, backend: Backend, states: States, plane: Plane, heads: Tensor, into: Partial
    ) -> None:
        backend.grid(states, plane, self, heads, into)

    def take(self, heads: Tensor) -> GridIndex:
        return GridIndex(*(values[heads] for values in vars(self).values()))
