"""Attention of queries that see all keys, which are split among programs where queries are few."""

# ruff: noqa: N803
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from ..attention.partial import Partial, States
from ..plane import PlaneStack
from .common import TileSizes, attention, begin, cell_of, every, finish, sizes, slots_of
from .indices import ClassOrder, Spacings, kernel_planes

SPLIT_PROGRAMS = 2048
"""Programs of a launch up to which keys are split: eight for each place of an H100 or H200."""

SPLIT_KEYS = 4096
"""Keys of a part, on average at least: writing and merging it moves as much as 130 of them."""


class Parts(NamedTuple):
    """Results of parts, `[cells, slots, rows, padded]` and log-sum-exps in base 2, both fp32, of
    which a cell has `slots` at most, and a tile `most`."""

    out: Tensor
    lse: Tensor
    slots: int
    most: int


@triton.jit
def tile_of(
    plane, s, order, parts, row, first, number, LINES: tl.constexpr, SPLIT: tl.constexpr,
    MERGE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Returns a program's tile, -1 or less for none, how many parts it has and which one this is,
    and of its queries which there are, slots and frontiers."""
    stop, jump = tl.load(plane.sizes + row), 1
    if LINES:  # places in the order of classes
        jump = tl.load(s.stride + number).to(tl.int32)
        first = tl.load(s.phase + number).to(tl.int32)
        is_line = (tl.load(order.sizes + row * 2 + 1) > 0) & (tl.load(s.hline + number) > 0)
        stop = tl.where(is_line, tl.load(order.sizes + row * 2), 0)
    tiles = tl.cdiv(tl.maximum(stop - first, 0), jump * ROWS)
    count = 1
    if SPLIT:
        count = tl.maximum(tl.minimum(parts.slots // tl.maximum(tiles, 1), parts.most), 1)
    each = 1 if MERGE else count
    tile = tiles - 1 - tl.program_id(0) // each  # the longest first
    places = first + (tile * ROWS + tl.arange(0, ROWS)) * jump
    live = (places >= first) & (places < stop)
    if LINES:
        places = tl.load(order.places + row * order.entries + places, mask=live, other=-1)
        live = places >= 0
    frontier = tl.load(plane.frontier + row * plane.length + places, mask=live, other=-1)
    slots = slots_of(places, plane.queries + row * plane.length, live, True)
    return tile, count, tl.program_id(0) % each, live, slots, frontier


@triton.jit(do_not_specialize=["plane", "order", "parts"])  # of every prompt's own
def dense_kernel(
    a, plane, s, order, parts,
    LINES: tl.constexpr, SPLIT: tl.constexpr, PAIR: tl.constexpr, DIM: tl.constexpr,
    PADDED: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Runs a part of the keys of a tile of queries: a plane's last ones, or a horizontal line's."""
    head, row, first, number = cell_of(a)
    tile, count, part, live, slots, frontier = tile_of(
        plane, s, order, parts, row, first, number, LINES, SPLIT, False, ROWS
    )
    if tile >= 0:
        q, top, total, acc = begin(a, head, slots, live, DIM, PADDED, part)
        top, total, acc = every(
            a, head // a.group, q, frontier, live, 0, 1, plane.keys + row * plane.width,
            top, total, acc, DIM, PADDED, PAIR, KEYS, part, count,
        )  # fmt: skip
        if SPLIT:
            if count > 1:
                some = total > 0
                over = tl.where(some, total, 1.0)
                at = tl.program_id(1) * parts.slots + tl.program_id(0)
                at = at.to(tl.int64) * ROWS + tl.arange(0, ROWS)
                tl.store(parts.lse + at, tl.where(some, top + tl.log2(over), float("-inf")))
                to = parts.out + at[:, None] * PADDED + tl.arange(0, PADDED)[None, :]
                tl.store(to, acc / over[:, None], mask=some[:, None])
            total = tl.where(count > 1, 0.0, total)  # the merge writes the result
        finish(a, head, slots, live, top, total, acc, DIM, PADDED)


@triton.jit(do_not_specialize=["plane", "order", "parts"])
def merge_kernel(
    a, plane, s, order, parts,
    LINES: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):  # fmt: skip
    """Merges the parts of a tile, the first of which went on from what was there before."""
    head, row, first, number = cell_of(a)
    tile, count, _, live, slots, _ = tile_of(
        plane, s, order, parts, row, first, number, LINES, True, True, ROWS
    )
    if (tile >= 0) & (count > 1):
        top = tl.full((ROWS,), float("-inf"), tl.float32)
        total = tl.full((ROWS,), 0.0, tl.float32)
        acc = tl.full((ROWS, PADDED), 0.0, tl.float32)
        first = tl.program_id(1) * parts.slots + tl.program_id(0) * count
        for part in range(0, count):
            at = (first + part).to(tl.int64) * ROWS + tl.arange(0, ROWS)
            lse = tl.load(parts.lse + at)
            from_part = parts.out + at[:, None] * PADDED + tl.arange(0, PADDED)[None, :]
            made = tl.load(from_part, mask=(lse > float("-inf"))[:, None], other=0.0)
            best = tl.maximum(top, lse)
            base = tl.where(best == float("-inf"), 0.0, best)
            shrink, weight = tl.exp2(top - base), tl.exp2(lse - base)
            top, total = best, total * shrink + weight
            acc = acc * shrink[:, None] + made * weight[:, None]
        finish(a, head, slots, live, top, total, acc, DIM, PADDED)


def most_parts(stack: PlaneStack) -> int:
    """Returns how many parts the keys of a query may be split into."""
    return stack.width // SPLIT_KEYS


def dense(
    states: States, stack: PlaneStack, cells: Tensor, into: Partial, queries: Sequence[int],
    tiles: TileSizes, s: Spacings | None = None, order: ClassOrder | None = None,
) -> None:  # fmt: skip
    """Attends to all causal pairs of some queries, merged into `into`.

    Args:
        cells: see `KernelStates`.
        queries: how many cells have, the fewest and the most among them.
        s, order: where queries are those of horizontal lines, spacings and the planes' order.
    """
    counts = [triton.cdiv(each, tiles.rows) for each in queries if each]
    if not counts:
        return
    a, planes, count = attention(states, cells, into), kernel_planes(stack), cells.shape[1]
    constants = {"LINES": s is not None, **sizes(states, tiles)}
    slots, most, turns, parts = SPLIT_PROGRAMS // count, most_parts(stack), max(counts), None
    if most > 1 and 2 * min(counts) <= slots:
        lse = into.lse.new_empty(count, slots, tiles.rows)
        parts = Parts(lse.new_empty(*lse.shape, constants["PADDED"]), lse, slots, most)
        turns = max(turns, min(slots, turns * most))
    dense_kernel[turns, count](
        a, planes, s, order, parts, SPLIT=parts is not None, PAIR=stack.moves_keys, **constants
    )
    if parts is not None:
        merge_kernel[min(slots // 2, max(counts)), count](a, planes, s, order, parts, **constants)
