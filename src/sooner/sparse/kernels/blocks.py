"""Attention over marked blocks of a plane, and the estimate that they are chosen by."""

# ruff: noqa: N803
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad

from ...engine.attention.kernel import on_device
from ..attention.partial import Partial, States
from ..pairs import BlockIndex
from ..plane import PlaneStack
from ..probe import BlockCells, block_count, sampled_queries
from .common import (
    TileSizes,
    attention,
    begin,
    cell_of,
    finish,
    load_rows,
    sizes,
    slots_of,
    step,
    tiles_for,
)
from .indices import block_table, kernel_planes, rows_of

GROUPED = 32
"""Sampled queries of a tile: those of several blocks, as tensor cores take 16 or more."""


@triton.jit
def scores_of(
    a, kv_head, q, frontier, ranks, high, keys,
    DIM: tl.constexpr, PADDED: tl.constexpr, PERMUTED: tl.constexpr,
):  # fmt: skip
    """Returns scores in base 2, `[ROWS, KEYS]`, minus infinity where a key is unseen."""
    there = ranks <= high
    slots = slots_of(ranks, keys, there, PERMUTED)
    k = load_rows(a.k, kv_head, slots, there, DIM, PADDED)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * a.scale
    return tl.where(ranks[None, :] <= frontier[:, None], scores, float("-inf"))


@triton.jit(do_not_specialize=["plane", "blocks", "width"])  # of every prompt's own
def estimate_kernel(
    a, plane, sample, sums, blocks, width,
    PAIR: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
    KEYS: tl.constexpr, SIZE: tl.constexpr, SINK: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """Writes what sampled queries of `ROWS // EACH` blocks pay to each block of `SIZE` keys.

    Blocks without queries are left as they are.

    Args:
        sample: places, -1 for none, `[planes, blocks, EACH]` int32.
        sums: `[cells, width, width]` fp32.
    """
    cell = tl.program_id(1)
    head = tl.load(a.cells + cell).to(tl.int32)
    row = tl.load(a.cells + a.pitch + cell)
    group: tl.constexpr = ROWS // EACH
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * group  # the longest first
    entry = first * EACH + tl.arange(0, ROWS)
    at = sample + row * blocks * EACH + entry
    places = tl.load(at, mask=entry < blocks * EACH, other=-1)
    live = places >= 0
    frontier = tl.load(plane.frontier + row * plane.length + places, mask=live, other=-1)
    slots = slots_of(places, plane.queries + row * plane.length, live, True)
    q = load_rows(a.q, head, slots, live, DIM, PADDED)
    keys = plane.keys + row * plane.width
    high = tl.max(frontier, 0)
    member = tl.arange(0, KEYS)
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.full((ROWS,), 0.0, tl.float32)
    for start in range(0, high + 1, KEYS):
        scores = scores_of(
            a, head // a.group, q, frontier, start + member, high, keys, DIM, PADDED, PAIR
        )
        best = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(best == float("-inf"), 0.0, best)
        total = total * tl.exp2(top - base) + tl.sum(tl.exp2(scores - base[:, None]), 1)
        top = best
    base = tl.where(total > 0, top, 0.0)
    factor = 1 / tl.where(total > 0, total, 1.0)
    number = first + tl.arange(0, group)
    present = tl.max(tl.reshape(frontier, (group, EACH)), 1) >= 0
    out = sums + (cell.to(tl.int64) * width + number) * width
    for block in range(0, high // SIZE + 1):
        mass = tl.full((ROWS,), 0.0, tl.float32)
        for part in range(0, SIZE, KEYS):
            ranks = block * SIZE + part + member
            scores = scores_of(
                a, head // a.group, q, frontier, ranks, high, keys, DIM, PADDED, PAIR
            )
            mass += tl.sum(tl.exp2(scores - base[:, None]), 1)
        mass = tl.sum(tl.reshape(mass * factor, (group, EACH)), 1)
        always = (block == number) | ((block < SINK) & (block < number))
        mass = tl.where(always, float("inf"), mass)
        tl.store(out + block, mass, mask=present)
    for start in range(high // SIZE + 1, width, KEYS):
        columns = start + member
        there = present[:, None] & (columns < width)[None, :]
        tl.store(out[:, None] + columns[None, :], 0.0, mask=there)


def estimate(
    states: States, stack: PlaneStack, groups: Sequence[BlockCells], table: Tensor
) -> Tensor:
    """Returns what `sooner.sparse.probe.estimate_blocks` does, by one launch a group."""
    width, first = block_count(stack, groups), 0
    sums = torch.empty(table.shape[1], width, width, device=table.device)
    unused = Partial(states.queries, states.queries[..., 0])
    with on_device(states.queries):
        for size, rows, sink, cells in groups:
            last = first + len(cells)
            sample = _sample(stack, size, rows)
            blocks, each = sample.shape[1:]
            wide = tiles_for(states)
            tiles = TileSizes(max(GROUPED, each), min(wide.keys, size), 4, 2)
            a = attention(states, table[:, first:last], unused)._replace(pitch=table.stride(0))
            turns = triton.cdiv(blocks * each, tiles.rows)
            estimate_kernel[turns, len(cells)](
                a, kernel_planes(stack), sample, sums[first:last], blocks, width,
                PAIR=stack.moves_keys, SIZE=size, SINK=sink, EACH=each, **sizes(states, tiles),
            )  # fmt: skip
            first = last
    return sums


def _sample(stack: PlaneStack, size: int, rows: int) -> Tensor:
    """Returns `estimate_kernel`'s places, made once."""
    key = "sample", size, rows
    if key not in stack.cache:
        more = triton.next_power_of_2(rows) - rows
        each = [pad(sampled_queries(p, size, rows), (0, more), value=-1) for p in stack.planes]
        stack.cache[key] = rows_of(each, -1).to(torch.int32)
    return stack.cache[key]


class BlockLists(NamedTuple):
    """Holds a `BlockIndex` as a kernel reads it; see there.

    Attributes:
        width: length of a row.
    """

    order: Tensor
    counts: Tensor
    width: int


@triton.jit(do_not_specialize=["plane", "lists", "tiles"])  # of every prompt's own
def block_kernel(
    a, plane, lists, table, tiles,
    PAIR: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):  # fmt: skip
    """Runs a tile of the plane's queries that share a block of `ROWS` frontiers."""
    head, row, _, number = cell_of(a)
    at = table + (row * tiles + tl.num_programs(0) - 1 - tl.program_id(0)) * 3
    start = tl.load(at)
    stop = tl.load(at + 1)
    if start < stop:
        places = start + tl.arange(0, ROWS)
        live = places < stop
        frontier = tl.load(plane.frontier + row * plane.length + places, mask=live, other=-1)
        slots = slots_of(places, plane.queries + row * plane.length, live, True)
        q, top, total, acc = begin(a, head, slots, live, DIM, PADDED)
        keys = plane.keys + row * plane.width
        kv_head = head // a.group
        block = tl.load(at + 2)
        high = tl.max(frontier, 0)
        member = tl.arange(0, KEYS)
        for part in range(0, ROWS, KEYS):
            ranks = block * ROWS + part + member
            seen = ranks[None, :] <= frontier[:, None]
            top, total, acc = step(
                a, kv_head, q, ranks, ranks <= high, seen, keys, top, total, acc,
                DIM, PADDED, PAIR, True,
            )  # fmt: skip
        line = number.to(tl.int64) * lists.width + block
        count = tl.load(lists.counts + line).to(tl.int32)
        there = member >= 0
        last = lists.order + line * lists.width + lists.width - 1
        for turn in range(0, count):
            other = tl.load(last - turn).to(tl.int32)
            if other != block:
                for part in range(0, ROWS, KEYS):
                    top, total, acc = step(
                        a, kv_head, q, other * ROWS + part + member, there, there, keys,
                        top, total, acc, DIM, PADDED, PAIR, False,
                    )  # fmt: skip
        finish(a, head, slots, live, top, total, acc, DIM, PADDED)


def marked_blocks(
    states: States, stack: PlaneStack, index: BlockIndex, size: int, cells: Tensor, into: Partial,
    tiles: TileSizes,
) -> None:  # fmt: skip
    """Attends to marked blocks of planes, and of each block to itself, merged into `into`.

    Args:
        size: ranks of a block of these cells.
        cells: see `KernelStates`.
    """
    square = replace(tiles, rows=size, keys=min(tiles.keys, size), warps=4 if size < 128 else 8)
    lists = BlockLists(index.order, index.counts, index.order.shape[2])
    table = block_table(stack, size)
    count = table.shape[1]
    block_kernel[count, cells.shape[1]](
        attention(states, cells, into), kernel_planes(stack), lists, table, count,
        PAIR=stack.moves_keys, **sizes(states, square),
    )  # fmt: skip
