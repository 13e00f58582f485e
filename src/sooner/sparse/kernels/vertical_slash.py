"""Vertical-slash attention over a plane (MInference's kernel, our indices)."""

# ruff: noqa: N803
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from dataclasses import replace

import triton
import triton.language as tl
from torch import Tensor

from ..attention.partial import Partial, States
from ..plane import PlaneStack
from .common import TileSizes, attention, begin, cell_of, finish, sizes, slots_of, step
from .indices import LineLists, block_table, kernel_planes


@triton.jit
def lines_step(
    a, lists, number, kv_head, q, frontier, block, keys, top, total, acc,
    DIM: tl.constexpr, PADDED: tl.constexpr, PERMUTED: tl.constexpr, KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Attend to what queries of one block of frontiers see: the block, what is covered, columns.

    As all rows share `frontier // BLOCK`, one list of distances serves them, and only the block
    itself needs causality.

    Args:
        number: the head's place in the lists.
        block: `frontier // BLOCK` of every row.
    """
    member = tl.arange(0, KEYS)
    parts: tl.constexpr = BLOCK // KEYS
    begin_rank = block * BLOCK
    high = tl.max(frontier, 0)
    for part in range(0, parts):
        ranks = begin_rank + part * KEYS + member
        seen = ranks[None, :] <= frontier[:, None]
        top, total, acc = step(
            a, kv_head, q, ranks, ranks <= high, seen, keys, top, total, acc,
            DIM, PADDED, PERMUTED, True,
        )  # fmt: skip
    number = number.to(tl.int64)
    counts = lists.counts + number * 2 * lists.keys + begin_rank - 1
    listed = lists.ranks + (number * 2 + 1) * lists.row + 1
    reach = tl.load(counts + lists.keys, mask=begin_rank > 0, other=0).to(tl.int32)
    for start in range(0, reach, KEYS):
        there = start + member < reach
        apart = tl.load(listed + start + member, mask=there, other=0).to(tl.int32) + 1
        top, total, acc = step(
            a, kv_head, q, begin_rank - apart, there, there[None, :], keys, top, total, acc,
            DIM, PADDED, PERMUTED, True,
        )  # fmt: skip
    count = tl.load(counts, mask=begin_rank > 0, other=0).to(tl.int32)
    covered_row = lists.covered + number * lists.wide + lists.pitch
    for start in range(0, count, KEYS):
        there = start + member < count
        at = listed - lists.row + start + member
        ranks = tl.load(at, mask=there, other=0).to(tl.int32)
        covered = tl.load(covered_row + begin_rank - ranks - 1, mask=there, other=1)
        there = covered == 0
        top, total, acc = step(
            a, kv_head, q, ranks, there, there[None, :], keys, top, total, acc,
            DIM, PADDED, PERMUTED, True,
        )  # fmt: skip
    return top, total, acc


@triton.jit(do_not_specialize=["plane", "lists", "tiles"])  # of every prompt's own
def vertical_slash_kernel(
    a, plane, lists, table, tiles,
    PAIR: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
    KEYS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Runs a tile of the plane's queries that share a block of frontiers."""
    head, row, last, number = cell_of(a)
    at = table + (row * tiles + tl.num_programs(0) - 1 - tl.program_id(0)) * 3
    start = tl.load(at)
    stop = tl.minimum(tl.load(at + 1), last)
    if start < stop:
        places = start + tl.arange(0, ROWS)
        live = places < stop
        frontier = tl.load(plane.frontier + row * plane.length + places, mask=live, other=-1)
        slots = slots_of(places, plane.queries + row * plane.length, live, True)
        q, top, total, acc = begin(a, head, slots, live, DIM, PADDED)
        top, total, acc = lines_step(
            a, lists, number, head // a.group, q, frontier, tl.load(at + 2),
            plane.keys + row * plane.width, top, total, acc, DIM, PADDED, PAIR, KEYS, BLOCK,
        )  # fmt: skip
        finish(a, head, slots, live, top, total, acc, DIM, PADDED)


def vertical_slash(
    states: States, stack: PlaneStack, lists: LineLists, cells: Tensor, into: Partial,
    tiles: TileSizes,
) -> None:  # fmt: skip
    """Attends to lines of planes, up to each cell's first query that sees everything.

    Args:
        cells: see `KernelStates`.
    """
    block = lists.block
    square = replace(tiles, rows=block, keys=min(tiles.keys, block), warps=4)
    table = block_table(stack, block)
    count = table.shape[1]
    vertical_slash_kernel[count, cells.shape[1]](
        attention(states, cells, into), kernel_planes(stack), lists, table, count,
        BLOCK=block, PAIR=stack.moves_keys, **sizes(states, square),
    )  # fmt: skip
