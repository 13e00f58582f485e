"""Boundaries in plain torch: gathered, attended to, scattered (algorithms 6 and 7)."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from ...attention.partial import Partial, States
from ...plane import Plane


class Op(Protocol):
    """A modality's attention over a plane whose queries have been gathered."""

    def __call__(self, states: States, plane: Plane, heads: Tensor, into: Partial) -> None: ...


def q_boundary(states: States, plane: Plane, heads: Tensor, into: Partial, op: Op) -> None:
    """Permute queries, run `op`, and permute its result back into `into`.

    Args:
        op: attention of kind dense, lines or grid; gets a plane whose queries are `0, 1, ...`.
    """
    gathered = States(
        states.queries[:, plane.queries], states.keys, states.values, states.scale
    )  # queries: [heads, queries, head_dim]
    places = torch.arange(len(plane.queries), device=plane.queries.device)
    inner = Plane(places, plane.keys, plane.frontier, plane.period, plane.offset)
    part = Partial.empty(gathered)
    op(gathered, inner, heads, part)
    into.add(heads, plane.queries, part.output[heads], part.mass[heads])


def two_d_boundary(states: States, plane: Plane, heads: Tensor, into: Partial, op: Op) -> None:
    """Permute keys and values, then go on as with a query boundary.

    Args:
        op: as in `q_boundary`; gets a plane whose queries and keys are `0, 1, ...`.
    """
    gathered = States(
        states.queries, states.keys[:, plane.keys], states.values[:, plane.keys], states.scale
    )  # keys: [kv_heads, keys, head_dim]
    ranks = torch.arange(len(plane.keys), device=plane.keys.device)
    inner = Plane(plane.queries, ranks, plane.frontier, plane.period, plane.offset)
    q_boundary(gathered, inner, heads, into, op)
