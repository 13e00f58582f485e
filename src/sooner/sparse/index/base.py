"""What every index has in common: it is a set of (frontier, rank) pairs for each head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from ..plane import Plane

if TYPE_CHECKING:
    from ..attention.backend import Backend
    from ..attention.partial import Partial, States


class Index(Protocol):
    """Which keys the queries of a plane see, per head: what patterns give and kernels take.

    An index holds a causal set, and the key at a query's frontier always belongs to it, so no
    query that may see anything sees nothing.
    """

    @property
    def heads(self) -> int:
        """Heads that it describes."""
        ...

    def seen(self, head: int, plane: Plane, queries: slice = slice(None)) -> Tensor:
        """Which keys some of the plane's queries see, `[queries, keys]` bool."""
        ...

    def take(self, heads: Tensor) -> Any:
        """The index of some heads, in that order."""
        ...

    def run(
        self, backend: Backend, states: States, plane: Plane, heads: Tensor, into: Partial
    ) -> None:
        """Have a backend execute it; `heads` are those of the row, in the index's order."""
        ...


def causal(plane: Plane, queries: slice) -> tuple[Tensor, Tensor, Tensor]:
    """Frontiers `[queries, 1]`, ranks `[1, keys]`, and which pairs are causal."""
    frontier = plane.frontier[queries, None]
    rank = torch.arange(len(plane.keys), device=frontier.device)[None]
    return frontier, rank, rank <= frontier


def share(index: Index, plane: Plane, queries: int = 256) -> Tensor:
    """Share of the plane's causal pairs that each head computes, `[heads]`, fp64.

    Counted on `queries` evenly spaced queries: exact for planes with no more than that, and a
    close estimate for longer ones, at a cost that grows with the keys only.
    """
    total = len(plane.queries)
    step = max(total // max(queries, 1), 1)
    every = slice(step - 1, None, step)
    allowed = (plane.frontier[every] + 1).sum().double()
    kept = [index.seen(head, plane, every).sum().double() for head in range(index.heads)]
    return torch.stack(kept) / allowed.clamp(min=1)
