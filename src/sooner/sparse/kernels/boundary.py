"""Boundaries (MMInference): queries of one modality, all keys (algorithm 6) or one's own (7).

A tile loads its slots first, then queries through them; the modality's own attention is the inner
step of another kernel; results go back through the slots. Nothing is permuted in memory.

With a query boundary keys stay where they are. With a 2D-boundary (`PAIR`) every step loads the
slots of its keys, then keys and values through them; a pair of modalities is one launch, which goes
on from the state that the pairs before it have left in the result.
"""

# ruff: noqa: N803
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..attention.partial import Partial, States
from ..plane import Plane
from .common import INTERPRETED, TileSizes, attention, begin, every, finish, sizes, slots_of
from .grid import all_seen, band_step, class_step, is_visible
from .indices import LineLists, Spacings, block_table, class_table, passes, permuted
from .vertical_slash import lines_step


@triton.jit(do_not_specialize=["plane", "start"])  # of every prompt's own
def boundary_dense(
    a, plane, first, start,
    PAIR: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):  # fmt: skip
    """Runs a tile of the plane's queries from place `start` on."""
    number = tl.program_id(1)
    tile = tl.num_programs(0) - 1 - tl.program_id(0)  # the longest first
    places = start + tile * ROWS + tl.arange(0, ROWS)
    live = (places >= tl.load(first + number)) & (places < plane.length)
    frontier = tl.load(plane.frontier + places, mask=live, other=-1)
    slots = slots_of(places, plane.queries, live, True)
    head = tl.load(a.heads + number)
    q, top, total, acc = begin(a, head, slots, live, DIM, PADDED)
    top, total, acc = every(
        a, head // a.group, q, frontier, live, 0, 1, plane.keys, top, total, acc,
        DIM, PADDED, PAIR, KEYS,
    )  # fmt: skip
    finish(a, head, slots, live, top, total, acc, DIM, PADDED)


@triton.jit(do_not_specialize=["plane", "lists"])  # of every prompt's own
def boundary_lines(
    a, plane, lists, table,
    PAIR: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
    KEYS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Runs a tile of the plane's queries that share a block of frontiers."""
    number = tl.program_id(1)
    row = (tl.num_programs(0) - 1 - tl.program_id(0)) * 3
    start = tl.load(table + row)
    stop = tl.minimum(tl.load(table + row + 1), tl.load(lists.last + number))
    if start < stop:
        places = start + tl.arange(0, ROWS)
        live = places < stop
        frontier = tl.load(plane.frontier + places, mask=live, other=-1)
        slots = slots_of(places, plane.queries, live, True)
        head = tl.load(a.heads + number)
        q, top, total, acc = begin(a, head, slots, live, DIM, PADDED)
        top, total, acc = lines_step(
            a, lists, number, head // a.group, q, frontier, tl.load(table + row + 2),
            plane.keys, top, total, acc, DIM, PADDED, PAIR, KEYS, BLOCK,
        )  # fmt: skip
        finish(a, head, slots, live, top, total, acc, DIM, PADDED)


@triton.jit(do_not_specialize=["plane", "classes"])  # of every prompt's own
def boundary_class(
    a, plane, s, classes,
    PAIR: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):  # fmt: skip
    """Runs a tile of the plane's queries that share a class."""
    number = tl.program_id(1)
    row = (number * classes.tiles + classes.tiles - 1 - tl.program_id(0)) * 3
    start = tl.load(classes.table + row)
    stop = tl.load(classes.table + row + 1)
    classed = (tl.load(s.hline + number) > 0) | (tl.load(s.slash + number) > 0)
    if classed & (start < stop):
        turns = start + tl.arange(0, ROWS)
        live = turns < stop
        order = classes.order + number.to(tl.int64) * plane.length
        places = tl.load(order + turns, mask=live, other=0)
        frontier = tl.load(plane.frontier + places, mask=live, other=-1)
        slots = slots_of(places, plane.queries, live, True)
        head = tl.load(a.heads + number)
        q, top, total, acc = begin(a, head, slots, live, DIM, PADDED)
        top, total, acc = class_step(
            a, s, number, head // a.group, q, frontier, live, tl.load(classes.table + row + 2),
            plane.keys, top, total, acc, DIM, PADDED, PAIR, KEYS,
        )  # fmt: skip
        finish(a, head, slots, live, top, total, acc, DIM, PADDED)


@triton.jit(do_not_specialize=["plane"])  # of every prompt's own
def boundary_band(
    a, plane, s,
    PAIR: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):  # fmt: skip
    """Runs a tile of the plane's queries in their order."""
    number = tl.program_id(1)
    if is_visible(s, number):
        tile = tl.num_programs(0) - 1 - tl.program_id(0)
        places = tile * ROWS + tl.arange(0, ROWS)
        there = places < plane.length
        frontier = tl.load(plane.frontier + places, mask=there, other=-1)
        live = there & (frontier >= 0) & (all_seen(s, number, frontier) == 0)
        slots = slots_of(places, plane.queries, live, True)
        head = tl.load(a.heads + number)
        q, top, total, acc = begin(a, head, slots, live, DIM, PADDED)
        top, total, acc = band_step(
            a, s, number, head // a.group, q, frontier, live, plane.keys, top, total, acc,
            DIM, PADDED, True, PAIR, KEYS,
        )  # fmt: skip
        finish(a, head, slots, live, top, total, acc, DIM, PADDED)


def dense(
    states: States, plane: Plane, heads: Tensor, into: Partial, first: Tensor, start: int,
    tiles: TileSizes, is_pair: bool,
) -> None:  # fmt: skip
    """Attends to all causal pairs.

    Args:
        states, plane, heads, into, first, start, tiles: as in `kernels.dense.dense`.
        is_pair: whether keys are permuted, too.
    """
    a = attention(states, heads, into, INTERPRETED)
    turns = triton.cdiv(len(plane.queries) - start, tiles.rows)
    boundary_dense[turns, len(heads)](
        a, permuted(plane), first, start, PAIR=is_pair, **sizes(states, tiles)
    )


def lines(
    states: States, plane: Plane, lists: LineLists, block: int, heads: Tensor, into: Partial,
    tiles: TileSizes, is_pair: bool,
) -> None:  # fmt: skip
    """Attends to lines; arguments are as in `kernels.vertical_slash.vertical_slash` and `dense`."""
    a = attention(states, heads, into, INTERPRETED)
    table = block_table(plane, block, tiles.rows)
    boundary_lines[len(table), len(heads)](
        a, permuted(plane), lists, table, BLOCK=block, PAIR=is_pair, **sizes(states, tiles)
    )


def grid(
    states: States, plane: Plane, spacing: Spacings, heads: Tensor, into: Partial, tiles: TileSizes,
    is_pair: bool,
) -> None:  # fmt: skip
    """Attends to evenly spaced lines; arguments are as in `kernels.grid.grid` and `dense`."""
    count = len(plane.queries)
    a, slots, todo = attention(states, heads, into, INTERPRETED), permuted(plane), passes(spacing)
    strides = [stride for stride in todo.strides if stride]
    if strides:
        fit = tiles.clamp(triton.cdiv(count, min(strides)))
        classes = class_table(plane, spacing.stride, todo.strides, fit.rows)
        boundary_class[classes.tiles, len(heads)](
            a, slots, spacing, classes, PAIR=is_pair, **sizes(states, fit)
        )
    if todo.band:
        turns = triton.cdiv(count, tiles.narrow.rows)
        constants = sizes(states, tiles.narrow)
        boundary_band[turns, len(heads)](a, slots, spacing, PAIR=is_pair, **constants)
