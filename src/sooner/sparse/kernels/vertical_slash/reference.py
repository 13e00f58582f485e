"""Vertical-slash attention in plain torch, as the kernel goes about it: block row by block row."""

from __future__ import annotations

import torch
from torch import Tensor

from ...attention.partial import Partial, States
from ...pairs import LineIndex
from ...plane import Plane
from ..dense.reference import attend, dense


def vertical_slash(
    states: States, plane: Plane, index: LineIndex, heads: Tensor, into: Partial
) -> None:
    """Lines and last queries of each head; see `Backend.lines`."""
    last = (len(plane.queries) - index.bottom).clamp(min=0)
    for number, head in enumerate(heads.tolist()):
        for block in range(len(plane.keys) // index.block + 1):
            mine = (plane.frontier >= 0) & (plane.frontier // index.block == block)
            mine[int(last[number]) :] = False
            ranks = _ranks(plane, index, number, block)
            seen = ranks <= plane.frontier[mine, None]
            attend(states, head, plane.queries[mine], plane.keys[ranks], seen, into)
    dense(states, plane, heads, into, last)


def _ranks(plane: Plane, index: LineIndex, number: int, block: int) -> Tensor:
    """Ranks that queries of a block see, causality aside: its own, its windows, and columns."""
    start, count = block * index.block, len(plane.keys)
    before = index.covered[number, :start].nonzero()[:, 0] + 1
    own = torch.arange(start, min(start + index.block, count), device=before.device)
    ranks = torch.cat([start - before, own, index.vertical[number]]).unique()  # a pair counts once
    return ranks[ranks < count]
