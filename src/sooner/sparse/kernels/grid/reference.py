"""Grid attention in plain torch, as algorithm 5 goes about it: class by class, then the rest."""

from __future__ import annotations

import torch
from torch import Tensor

from ...attention.partial import Partial, States
from ...pairs import GridIndex
from ...plane import Plane
from ..dense.reference import attend


def grid(states: States, plane: Plane, index: GridIndex, heads: Tensor, into: Partial) -> None:
    """Lines of each head; see `Backend.grid`."""
    for number, head in enumerate(heads.tolist()):
        _classes(states, plane, index, number, head, into)
        _band(states, plane, index, number, head, into)


def _classes(
    states: States, plane: Plane, index: GridIndex, number: int, head: int, into: Partial
) -> None:
    """Queries of each class against the classes of keys that they see: dense causal blocks."""
    stride, phase = int(index.stride[number]), int(index.phase[number])
    ranks = torch.arange(len(plane.keys), device=plane.keys.device)
    for own in range(stride):
        mine = (plane.frontier >= 0) & (plane.frontier % stride == own)
        wanted = torch.zeros_like(ranks, dtype=torch.bool)
        if index.hline[number] and own == phase:
            wanted[:] = True
        if index.slash[number]:
            wanted |= ranks % stride == own
        if index.vline[number]:
            wanted |= ranks % stride == phase
        seen = ranks[wanted] <= plane.frontier[mine, None]
        attend(states, head, plane.queries[mine], plane.keys[wanted], seen, into)


def _band(
    states: States, plane: Plane, index: GridIndex, number: int, head: int, into: Partial
) -> None:
    """Segments, sinks and nearest keys, less what the classes have counted."""
    stride, phase = index.stride[number], index.phase[number]
    frontier, ranks = plane.frontier[:, None], torch.arange(len(plane.keys))
    ranks = ranks.to(frontier.device)
    seen = (frontier - ranks < index.local[number]) | (ranks < index.sink[number])
    if index.segment[number]:
        seen |= (frontier - phase) // stride == (ranks - phase) // stride
    if index.hline[number]:
        seen &= frontier % stride != phase
    if index.vline[number]:
        seen &= ranks % stride != phase
    if index.slash[number]:
        seen &= (frontier - ranks) % stride != 0
    seen &= ranks <= frontier
    attend(states, head, plane.queries, plane.keys, seen, into)
