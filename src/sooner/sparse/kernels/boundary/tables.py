"""Tiles of permuted planes, built on the device: rows that share a block or a class.

Where queries are not keys, tiles are no arithmetic: frontiers skip and repeat. Rows are grouped
instead, so that inside a tile everything is as regular as in a whole plane.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...plane import Plane


class Permuted(NamedTuple):
    """A plane as a kernel reads it.

    Attributes:
        queries, keys: slots, int64.
        frontier: int32.
        length: queries.
    """

    queries: Tensor
    keys: Tensor
    frontier: Tensor
    length: int


class Classes(NamedTuple):
    """Queries in order of their class, per head, and tiles of that order.

    Attributes:
        order: places, `[heads, queries]` int32.
        table: first and past-last place in `order`, and class, `[heads, tiles, 3]` int32.
        tiles: of a head.
    """

    order: Tensor
    table: Tensor
    tiles: int


def permuted(plane: Plane) -> Permuted:
    """The plane's arrays, contiguous."""
    frontier = plane.frontier.to(torch.int32).contiguous()
    return Permuted(
        plane.queries.contiguous(), plane.keys.contiguous(), frontier, len(plane.queries)
    )


def block_table(plane: Plane, block: int, rows: int) -> Tensor:
    """Tiles whose queries share `frontier // block`: first and past-last place, and that block.

    Queries that see nothing are in no tile. Tiles that are not needed are empty, so that their
    number needs no answer from the device.

    Returns:
        `[tiles, 3]`, int32.
    """
    blocks = max(len(plane.keys) - 1, 0) // block + 1
    edges = torch.arange(blocks + 1, device=plane.frontier.device) * block
    first = torch.searchsorted(plane.frontier.contiguous(), edges)  # [blocks + 1]
    return _tiles(first[:-1], first.diff(), rows, len(plane.queries))


def class_table(plane: Plane, stride: Tensor, strides: list[int], rows: int) -> Classes:
    """Tiles whose queries share `frontier % stride`, for each head.

    Args:
        stride: `[heads]`.
        strides: the same on the host, 0 for heads that have no classes.
    """
    count, most = len(plane.queries), max(strides)
    order = torch.empty(len(strides), count, dtype=torch.int32, device=plane.frontier.device)
    tables = []
    for head in range(len(strides)):
        # A class of their own, behind the last, for those that see nothing or have no classes.
        outside = (plane.frontier < 0) | (strides[head] == 0)
        own = torch.where(outside, most, plane.frontier % stride[head])
        order[head] = own.argsort(stable=True)
        sizes = torch.zeros(most + 1, dtype=own.dtype, device=own.device)
        sizes.index_add_(0, own, torch.ones_like(own))
        tables.append(_tiles((sizes.cumsum(0) - sizes)[:-1], sizes[:-1], rows, count))
    return Classes(order, torch.stack(tables), tables[0].shape[0])


def _tiles(first: Tensor, sizes: Tensor, rows: int, count: int) -> Tensor:
    """Cut groups of places into tiles of no more than `rows`.

    Args:
        first, sizes: of each group, `[groups]`.
        count: places in all, which bounds the number of tiles.

    Returns:
        first place, past-last place and group, `[tiles, 3]` int32; empty ones at the end.
    """
    each = (sizes + rows - 1) // rows
    ends = each.cumsum(0)
    number = torch.arange(count // rows + min(len(sizes), count), device=sizes.device)
    group = torch.searchsorted(ends, number, right=True)
    real = group < len(sizes)
    group = group.clamp(max=len(sizes) - 1)
    start = first[group] + (number - (ends - each)[group]) * rows
    stop = torch.minimum(first[group] + sizes[group], start + rows)
    table = torch.stack([start, stop, group], 1)
    return (table * real[:, None]).to(torch.int32).contiguous()
