"""What executes planes: the contract of the reference, the CPU and the Triton backend."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from ..index import GridIndex, LineIndex
from ..plane import Plane
from .partial import Partial, States


class Backend(Protocol):
    """Attends over the pairs that an index names, and merges the result into `into`.

    `heads` are numbers among the row's query heads, `[picked]`; an index describes the picked heads
    in that order. Planes handed to one `Partial` for one head never share a pair.
    """

    name: str

    def dense(self, states: States, plane: Plane, heads: Tensor, into: Partial) -> None:
        """All causal pairs of the plane."""
        ...

    def lines(
        self, states: States, plane: Plane, index: LineIndex, heads: Tensor, into: Partial
    ) -> None:
        """Vertical lines, windows of keys, and last queries that see everything."""
        ...

    def grid(
        self, states: States, plane: Plane, index: GridIndex, heads: Tensor, into: Partial
    ) -> None:
        """Evenly spaced lines."""
        ...
