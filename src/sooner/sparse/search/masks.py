"""What all heads of an index see at once: `Index.seen`, without a loop over heads."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import torch
from torch import Tensor

from ..index import GridIndex, Index, LineIndex
from ..index.base import causal
from ..plane import Plane


def seen_by_all(index: Index | None, plane: Plane, queries: Tensor) -> Tensor:
    """Which keys each head's queries see, `[heads, queries, keys]` bool; 1 head for dense ones.

    Args:
        queries: their places in the plane, `[queries]`.
    """
    allowed = causal(plane, queries)[2]
    return allowed[None] if index is None else _lines_seen(index, plane, queries) & allowed


@singledispatch
def _lines_seen(index: Any, plane: Plane, queries: Tensor) -> Tensor:
    """The same before causality."""
    return torch.stack([index.seen(head, plane, queries) for head in range(index.heads)])


@_lines_seen.register
def _(index: GridIndex, plane: Plane, queries: Tensor) -> Tensor:
    frontier, rank, _ = causal(plane, queries)
    columns = (value[:, None, None] for value in vars(index).values())
    stride, phase, hline, vline, slash, segment, sink, local = columns
    row, column = frontier % stride, rank % stride  # [heads, queries, 1], [heads, 1, keys]
    seen = (rank > frontier - local) | (rank < sink)
    seen = seen | (hline & (row == phase)) | (vline & (column == phase))
    if bool(slash.any()):
        seen |= slash & (row == column)
    if bool(segment.any()):
        seen |= segment & ((frontier - phase) // stride == (rank - phase) // stride)
    return seen


@_lines_seen.register
def _(index: LineIndex, plane: Plane, queries: Tensor) -> Tensor:
    return index.seen_by_all(plane, queries)
