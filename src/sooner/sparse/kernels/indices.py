"""Indices and permuted planes as kernels read them, built on the device without asking the host."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..pairs import GridIndex, LineIndex
from ..plane import Plane


class Spacings(NamedTuple):
    """A `GridIndex` that kernels can read, all `[heads]` int32; see there.

    A phase beyond the stride names no class, so its lines are switched off here.
    """

    stride: Tensor
    phase: Tensor
    hline: Tensor
    vline: Tensor
    slash: Tensor
    segment: Tensor
    sink: Tensor
    local: Tensor


def spacings(index: GridIndex) -> Spacings:
    """Returns the entries on the index's device."""
    known = index.phase < index.stride
    columns = {
        **vars(index),
        "phase": index.phase % index.stride,
        "hline": index.hline & known,
        "vline": index.vline & known,
    }
    return Spacings(*(columns[name].to(torch.int32).contiguous() for name in Spacings._fields))


def passes(spacing: Spacings) -> tuple[list[int], bool]:
    """Returns what a launch must know on the host; asks the device once.

    Returns:
        Each head's stride, 0 where it has no lines of a class; and whether any head has a part that
        is not a class: own keys, segments, sinks.
    """
    classed = (spacing.hline | spacing.slash) > 0
    banded = (spacing.slash == 0) | (spacing.segment > 0) | (spacing.sink > 0) | (spacing.local > 1)
    strides, band = torch.stack([spacing.stride * classed, banded.to(torch.int32)]).tolist()
    return strides, any(band)


class LineLists(NamedTuple):
    """A `LineIndex` as a kernel reads it; all are contiguous, and int32 but for `covered`.

    Attributes:
        windows: by how many ranks the first key of each window lies before a block, the nearest
            window first, `[heads, most]`; behind them anything.
        reach: how many of them a query of each block has a key in, `[heads, blocks]`.
        covered: 1 where a key before a block lies in a window, `[heads, keys]` int8.
        columns: vertical lines, ascending, `[heads, lines]`; behind them the number of keys.
        before: how many lie in blocks before each block, `[heads, blocks]`.
        last: place of the first query that sees everything, `[heads]`; not the lists' affair.
        most, blocks, keys, lines: rows' lengths.
    """

    windows: Tensor
    reach: Tensor
    covered: Tensor
    columns: Tensor
    before: Tensor
    last: Tensor
    maximum: int
    blocks: int
    keys: int
    lines: int


def line_lists(plane: Plane, index: LineIndex) -> LineLists:
    """Returns what the kernel follows; the index's blocks are a power of two of 16 or more."""
    keys, heads = len(plane.keys), index.heads
    blocks = max(keys - 1, 0) // index.block + 1
    edges = torch.arange(blocks, device=index.covered.device) * index.block
    each = edges.expand(heads, -1).contiguous()
    windows = _windows(index.covered, index.block)
    nearest = (windows - index.block + 1).clamp(min=1)
    reach = torch.searchsorted(nearest, each, right=True)
    columns = _distinct(index.vertical, keys)
    before = torch.searchsorted(columns, each)
    last = (len(plane.queries) - index.bottom).clamp(min=0)
    return LineLists(
        _flat(windows), _flat(reach), index.covered.to(torch.int8).contiguous(), _flat(columns),
        _flat(before), _flat(last), windows.shape[1], blocks, index.covered.shape[1],
        columns.shape[1],
    )  # fmt: skip


def _windows(covered: Tensor, block: int) -> Tensor:
    """Returns the windows that cover those keys, `[heads, most]`; see `LineLists`.

    A run of covered keys holds whole windows, counted from its far end; only the nearest may be
    cut, by the block that it lies before. So there are no more than fit between the keys.
    """
    heads, keys = covered.shape
    limit = keys // block + 2
    apart = torch.arange(1, keys + 1, device=covered.device).expand(heads, -1)
    beyond = torch.nn.functional.pad(covered, (0, 1))[:, 1:]
    far_end = apart.masked_fill(~covered | beyond, keys + 1)  # of the run that ends here
    far_end = far_end.flip(1).cummin(1).values.flip(1) if keys else far_end
    is_first = covered & ((far_end - apart) % block == 0)
    place = torch.where(is_first, is_first.cumsum(1) - 1, limit)
    none = torch.full((heads, limit + 1), keys + block, dtype=apart.dtype, device=covered.device)
    return none.scatter(1, place, apart)[:, :limit].contiguous()


def _distinct(columns: Tensor, keys: int) -> Tensor:
    """Ascending columns, each once; at least one a row, so that there is memory to point to."""
    columns = torch.nn.functional.pad(columns, (0, 1), value=keys).sort(1).values
    again = torch.zeros_like(columns, dtype=torch.bool)
    again[:, 1:] = columns[:, 1:] == columns[:, :-1]
    return columns.masked_fill(again, keys).sort(1).values.contiguous()


def _flat(values: Tensor) -> Tensor:
    return values.to(torch.int32).contiguous()


class Permuted(NamedTuple):
    """A plane that is laid out as a kernel reads it.

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
    """Holds queries in order of their class, per head, and tiles of that order.

    Attributes:
        order: places, `[heads, queries]` int32.
        table: first and past-last place in `order`, and class, `[heads, tiles, 3]` int32.
        tiles: of a head.
    """

    order: Tensor
    table: Tensor
    tiles: int


def permuted(plane: Plane) -> Permuted:
    """Returns the plane's arrays, contiguous."""
    frontier = plane.frontier.to(torch.int32).contiguous()
    return Permuted(
        plane.queries.contiguous(), plane.keys.contiguous(), frontier, len(plane.queries)
    )


def block_table(plane: Plane, block: int, rows: int) -> Tensor:
    """Returns tiles of queries with one `frontier // block`: first and past-last place, and block.

    Queries that see nothing are in no tile. Tiles that are not needed are empty, so that their
    number needs no answer from the device.

    Returns:
        `[tiles, 3]`, int32.
    """
    blocks = max(len(plane.keys) - 1, 0) // block + 1
    edges = torch.arange(blocks + 1, device=plane.frontier.device) * block
    first = torch.searchsorted(plane.frontier.contiguous(), edges)  # [blocks + 1]
    return _tiles(first[None, :-1], first[None].diff(), rows, len(plane.queries))[0]


def class_table(plane: Plane, stride: Tensor, strides: list[int], rows: int) -> Classes:
    """Returns tiles whose queries share `frontier % stride`, for each head.

    Args:
        stride: `[heads]`.
        strides: the same on the host, 0 for heads that have no classes.
    """
    count, limit = len(plane.queries), max(strides)
    # A class of their own, behind the last, for those that see nothing or have no classes.
    without = torch.tensor([not known for known in strides], device=stride.device)
    outside = (plane.frontier < 0) | without[:, None]
    phases = torch.where(outside, limit, plane.frontier % stride[:, None].long())
    sizes = phases.new_zeros(len(strides), limit + 1)
    sizes = sizes.scatter_add_(1, phases, torch.ones_like(phases))
    table = _tiles((sizes.cumsum(1) - sizes)[:, :-1], sizes[:, :-1], rows, count)
    order = torch.stack([row.argsort(stable=True).to(torch.int32) for row in phases])
    return Classes(order, table, table.shape[1])


def _tiles(first: Tensor, sizes: Tensor, rows: int, count: int) -> Tensor:
    """Cut groups of places into tiles of no more than `rows`.

    Args:
        first, sizes: of each group, `[heads, groups]`.
        count: places in all, which bounds the number of tiles.

    Returns:
        first place, past-last place and group, `[heads, tiles, 3]` int32; empty ones at the end.
    """
    each = (sizes + rows - 1) // rows
    ends = each.cumsum(1)
    groups = sizes.shape[1]
    number = torch.arange(count // rows + min(groups, count), device=sizes.device)
    number = number.expand(len(sizes), -1).contiguous()
    group = torch.searchsorted(ends, number, right=True)
    real = group < groups
    group = group.clamp(max=groups - 1)
    begin = first.gather(1, group)
    start = begin + (number - (ends - each).gather(1, group)) * rows
    stop = torch.minimum(begin + sizes.gather(1, group), start + rows)
    table = torch.stack([start, stop, group], 2)
    return (table * real[..., None]).to(torch.int32).contiguous()
