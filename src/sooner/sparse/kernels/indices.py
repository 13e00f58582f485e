"""Indices and planes as kernels read them, built on the device without asking the host."""

from __future__ import annotations

from collections import namedtuple
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..attention.fused import tiles_of
from ..pairs import GridIndex, LineIndex
from ..plane import Plane, PlaneStack

Spacings = namedtuple("Spacings", GridIndex.__dataclass_fields__)  # type: ignore[misc]
"""A `GridIndex` that kernels can read, all `[heads]`; see there."""


def spacings(index: GridIndex) -> Spacings:
    """Returns the entries on the index's device, where they are int64 and contiguous if drawn."""
    return Spacings(*(column.to(torch.int64).contiguous() for column in vars(index).values()))


class LineLists(NamedTuple):
    """Holds a `LineIndex` as a kernel reads it.

    Attributes:
        ranks: of vertical lines, and distances less one that are covered, ascending from entry 1
            on, `[heads, 2, 1 + bound]` int64; entry 0 and those behind the last mean nothing.
        counts: how many there are up to each rank and distance, `[heads, 2, keys]` int64.
        covered: 1 where a key before a block is covered, `[heads, 2, keys]` int8, in the second.
        row, keys: lengths of rows; in `covered` they are `pitch`, and `wide` of a head.
        block: queries that share what is covered.
    """

    ranks: Tensor
    counts: Tensor
    covered: Tensor
    row: int
    keys: int
    pitch: int
    wide: int
    block: int


def line_lists(index: LineIndex, rank: Tensor) -> LineLists:
    """Returns what the kernel follows; the index's blocks are a power of two of 16 or more.

    Args:
        rank: see `PlaneStack.rank`.
    """
    marks = index.marks
    keys = marks.shape[2]
    counts = marks.cumsum(2)
    ranks = torch.empty(*marks.shape[:2], index.bound + 1, dtype=torch.int64, device=marks.device)
    # What is in no list goes to entry 0.
    ranks.scatter_(2, counts * marks, rank[len(rank) // 2 :][:keys].expand(marks.shape))
    covered = marks.view(torch.int8)
    wide, pitch, _ = marks.stride()
    row = ranks.shape[2]
    return LineLists(ranks, counts, covered, row, keys, pitch, wide, index.block)


class KernelPlanes(NamedTuple):
    """Planes that are laid out as kernels read them, padded to one width.

    Attributes:
        queries, keys: slots, `[planes, length]` and `[planes, width]` int64.
        frontier: of each query, -1 behind the last, `[planes, length]` int32.
        sizes: how many queries there are, `[planes]` int32.
        length, width: of a row.
    """

    queries: Tensor
    keys: Tensor
    frontier: Tensor
    sizes: Tensor
    length: int
    width: int


def kernel_planes(stack: PlaneStack) -> KernelPlanes:
    """Returns the arrays of all planes, made once."""
    if "kernel" not in stack.cache:
        planes = stack.planes
        frontier = rows_of([plane.frontier for plane in planes], -1).to(torch.int32)
        sizes = torch.tensor([len(plane.queries) for plane in planes], device=frontier.device)
        stack.cache["kernel"] = KernelPlanes(
            rows_of([plane.queries for plane in planes]), rows_of([plane.keys for plane in planes]),
            frontier, sizes.to(torch.int32), stack.length, stack.width,
        )  # fmt: skip
    return stack.cache["kernel"]


def rows_of(values: list[Tensor], fill: int = 0) -> Tensor:
    """Returns rows below each other, padded to the longest."""
    most = max(map(len, values))
    padding = (0,) * (2 * values[0].dim() - 1)
    return torch.stack([pad(row, (*padding, most - len(row)), value=fill) for row in values])


class ClassOrder(NamedTuple):
    """Places of queries in an order in which tiles of one class are found whatever the stride.

    Attributes:
        places: -1 for none, `[planes, entries]` int32. Where no two queries share a frontier, the
            place of the query with each; elsewhere tiles of queries that share one.
        sizes: entries of each plane, and whether they are frontiers, `[planes, 2]` int32.
        entries: of a row.
    """

    places: Tensor
    sizes: Tensor
    entries: int


def class_order(stack: PlaneStack, rows: int) -> ClassOrder:
    """Returns the order for tiles of so many rows, made once."""
    if ("order", rows) not in stack.cache:
        each = [_order(plane, rows) for plane in stack.planes]
        sizes = [(len(row), p.is_distinct) for row, p in zip(each, stack.planes, strict=True)]
        table = torch.tensor(sizes, dtype=torch.int32, device=each[0].device)
        places = rows_of(each, -1).to(torch.int32)
        stack.cache["order", rows] = ClassOrder(places, table, places.shape[1])
    return stack.cache["order", rows]


def _order(plane: Plane, rows: int) -> Tensor:
    seeing = plane.frontier[plane.blind :]
    if not plane.is_distinct:
        place, real, _ = tiles_of(seeing, rows)
        return torch.where(real, place + plane.blind, -1).flatten()
    order = torch.full_like(plane.keys, -1)
    order[seeing] = torch.arange(len(seeing), device=order.device) + plane.blind
    return order


def block_table(stack: PlaneStack, block: int) -> Tensor:
    """Returns tiles of queries with one `frontier // block`: first and past-last place, and block.

    Queries that see nothing are in no tile. Tiles that are not needed are empty.

    Returns:
        `[planes, tiles, 3]`, int32, made once.
    """
    if ("blocks", block) not in stack.cache:
        tables = [_blocks(plane, block) for plane in stack.planes]
        stack.cache["blocks", block] = rows_of(tables).to(torch.int32)
    return stack.cache["blocks", block]


def _blocks(plane: Plane, block: int) -> Tensor:
    """Cuts queries that share a block into tiles of `block` or fewer, `[tiles, 3]`."""
    place, real, group = tiles_of(plane.frontier[plane.blind :] // block, block)
    first = place[:, 0] + plane.blind
    return torch.stack([first, first + real.sum(1), group], 1)
