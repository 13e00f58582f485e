"""What every index has in common: it is a set of (frontier, rank) pairs for each head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from ..plane import Plane

if TYPE_CHECKING:
    from ..attention.backend import Backend
    from ..attention.partial import Partial, States


Places = slice | Tensor
"""Some of a plane's queries: a slice, or their places in it, `[queries]`."""


class Index(Protocol):
    """Which keys the queries of a plane see, per head: what patterns give and kernels take.

    An index holds a causal set, and the key at a query's frontier always belongs to it, so no
    query that may see anything sees nothing.
    """

    @property
    def heads(self) -> int:
        """Heads that it describes."""
        ...

    def seen(self, head: int, plane: Plane, queries: Places = slice(None)) -> Tensor:
        """Which keys some of the plane's queries see, `[queries, keys]` bool."""
        ...

    def pairs(self, plane: Plane) -> Tensor:
        """Query-key pairs that each head computes, counted exactly, `[heads]` int64."""
        ...

    def take(self, heads: Tensor) -> Any:
        """The index of some heads, in that order."""
        ...

    def run(
        self, backend: Backend, states: States, plane: Plane, heads: Tensor, into: Partial
    ) -> None:
        """Have a backend execute it; `heads` are those of the row, in the index's order."""
        ...


def causal(plane: Plane, queries: Places) -> tuple[Tensor, Tensor, Tensor]:
    """Frontiers `[queries, 1]`, ranks `[1, keys]`, and which pairs are causal."""
    frontier = plane.frontier[queries, None]
    rank = torch.arange(len(plane.keys), device=frontier.device)[None]
    return frontier, rank, rank <= frontier


def share(index: Index, plane: Plane) -> Tensor:
    """Share of the plane's causal pairs that each head computes, exactly, `[heads]` fp64."""
    return index.pairs(plane).double() / max(plane.pairs, 1)


def spread(total: int, count: int, device: torch.device | str = "cpu", turn: float = 0.0) -> Tensor:
    """`count` of `total` places, ascending: one in each of equal stretches, `[count]`.

    Where in its stretch goes by multiples of the golden ratio. Evenly spaced places would fall on
    the same class of every stride that divides their distance, and see grids all or not at all.

    Args:
        turn: shifts all of them inside their stretches, by a share: other places of the same kind.
    """
    if count >= total:
        return torch.arange(total, device=device)
    number = torch.arange(count, device=device, dtype=torch.float64)
    inside = (number * 0.6180339887498949 + turn) % 1
    return ((number + inside) * total / count).long().clamp(max=total - 1)
