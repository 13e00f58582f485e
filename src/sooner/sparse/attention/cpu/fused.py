"""The backend of CPUs."""

from __future__ import annotations

from torch import Tensor

from ...pairs import GridIndex, LineIndex
from ...plane import Plane
from ..partial import Partial, States
from ..reference import Reference
from . import dense, grid, lines
from .flash import supports


class Fused:
    """Permutes each pattern into dense blocks, runs torch's fused kernel on them, and merges.

    States that the kernel does not take go to the reference: other dtypes, values of another size
    than the keys.
    """

    name = "fused"

    def dense(self, states: States, plane: Plane, heads: Tensor, into: Partial) -> None:
        """Attends to all causal pairs of the plane."""
        if not supports(states):
            Reference().dense(states, plane, heads, into)
        else:
            dense.dense(states, plane, heads, into)

    def lines(
        self, states: States, plane: Plane, index: LineIndex, heads: Tensor, into: Partial
    ) -> None:
        """Attends to vertical lines, windows of keys, and last queries that see everything."""
        if not supports(states):
            Reference().lines(states, plane, index, heads, into)
        else:
            lines.lines(states, plane, index, heads, into)

    def grid(
        self, states: States, plane: Plane, index: GridIndex, heads: Tensor, into: Partial
    ) -> None:
        """Attends to evenly spaced lines."""
        if not supports(states):
            Reference().grid(states, plane, index, heads, into)
        else:
            grid.grid(states, plane, index, heads, into)
