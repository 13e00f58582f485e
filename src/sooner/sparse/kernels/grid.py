"""Grid attention over a plane (MMInference, algorithm 5).

Two kernels, as in the paper: one loads queries sparsely, a tile holding rows of one class only, so
that a line of the grid is a dense causal block; the other loads rows as they stand. They go on from
one another's state and never count a pair twice.
"""

# ruff: noqa: N803
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..attention.partial import Partial, States
from ..plane import Plane
from .common import TileSizes, attention, begin, every, finish, sizes, slots_of, step
from .indices import Spacings, class_table, passes, permuted


@triton.jit
def class_step(
    a, s, number, kv_head, q, frontier, live, current, keys, top, total, acc,
    DIM: tl.constexpr, PADDED: tl.constexpr, PERMUTED: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Attends to lines for queries of class `current`: all keys, or their class and the phase's.

    Args:
        s: spacings.
        number: the head's place among them.
    """
    stride = tl.load(s.stride + number)
    phase = tl.load(s.phase + number)
    slash = tl.load(s.slash + number) > 0
    vline = tl.load(s.vline + number) > 0
    if (tl.load(s.hline + number) > 0) & (current == phase):
        top, total, acc = every(
            a, kv_head, q, frontier, live, 0, 1, keys, top, total, acc, DIM, PADDED, PERMUTED, KEYS
        )
    else:
        # Two lines at most, the second skipped where it would be the first again.
        low = tl.where(slash, 0, 1)
        high = tl.where(vline & ((current != phase) | (slash == 0)), 2, 1)
        for line in range(low, high):
            first = tl.where(line == 0, current, phase)
            top, total, acc = every(
                a, kv_head, q, frontier, live, first, stride, keys, top, total, acc,
                DIM, PADDED, PERMUTED, KEYS,
            )  # fmt: skip
    return top, total, acc


@triton.jit
def unclassed(s, number, ranks, frontier, stride, phase):
    """Pairs that no line of a class has counted, `[ROWS, KEYS]`; the query's line is not asked."""
    slash = tl.load(s.slash + number) > 0
    vline = tl.load(s.vline + number) > 0
    ranks = ranks[None, :]
    counted = (slash & (ranks % stride == frontier[:, None] % stride)) | (
        vline & (ranks % stride == phase)
    )
    return (counted == 0) & (ranks <= frontier[:, None])


@triton.jit
def band_step(
    a, s, number, kv_head, q, frontier, live, keys, top, total, acc,
    DIM: tl.constexpr, PADDED: tl.constexpr, APART: tl.constexpr, PERMUTED: tl.constexpr,
    KEYS: tl.constexpr,
):  # fmt: skip
    """Nearest keys, the own segment and the sink, less what lines have counted.

    Nearest keys and segment are one stretch of ranks that ends at the frontier. A head without
    lines of a class has its vertical line here, as rows need not be sorted for it.

    Args:
        APART: whether frontiers of a tile may lie far apart.
    """
    stride = tl.load(s.stride + number)
    phase = tl.load(s.phase + number)
    classed = (tl.load(s.hline + number) > 0) | (tl.load(s.slash + number) > 0)
    if (classed == 0) & (tl.load(s.vline + number) > 0):
        top, total, acc = every(
            a, kv_head, q, frontier, live, phase, stride, keys, top, total, acc,
            DIM, PADDED, PERMUTED, KEYS,
        )  # fmt: skip
    head_start = (frontier - phase + stride) // stride * stride + phase - stride
    begin_at = frontier - tl.load(s.local + number) + 1
    segment = tl.load(s.segment + number) > 0
    begin_at = tl.where(segment, tl.minimum(begin_at, head_start), begin_at)
    begin_at = tl.maximum(begin_at, 0)
    member = tl.arange(0, KEYS)
    low = tl.min(tl.where(live, begin_at, 2147483647), 0)
    high = tl.max(tl.where(live, frontier, -1), 0)
    low = tl.minimum(low, high + 1)  # no live row: loads ahead of a loop must not overflow
    for start in range(low, high + 1, KEYS):
        ranks = start + member
        seen = unclassed(s, number, ranks, frontier, stride, phase)
        seen = seen & (ranks[None, :] >= begin_at[:, None])
        # Rows of a permuted plane may lie far apart: steps between them are of no use.
        if (tl.max(seen.to(tl.int32)) > 0) if APART else True:
            top, total, acc = step(
                a, kv_head, q, ranks, ranks <= high, seen, keys, top, total, acc,
                DIM, PADDED, PERMUTED, True,
            )  # fmt: skip
    sink = tl.minimum(tl.load(s.sink + number), high + 1)
    for start in range(0, sink, KEYS):
        ranks = start + member
        there = ranks < sink
        seen = unclassed(s, number, ranks, frontier, stride, phase)
        seen = seen & there[None, :] & (ranks[None, :] < begin_at[:, None])
        top, total, acc = step(
            a, kv_head, q, ranks, there, seen, keys, top, total, acc,
            DIM, PADDED, PERMUTED, True,
        )  # fmt: skip
    return top, total, acc


@triton.jit
def all_seen(s, number, frontier):
    """Rows on a horizontal line, which the classes have served."""
    stride = tl.load(s.stride + number)
    hline = tl.load(s.hline + number) > 0
    return hline & (frontier % stride == tl.load(s.phase + number))


@triton.jit
def is_visible(s, number):
    """Whether a head has a part that is not a class."""
    without = tl.load(s.slash + number) == 0
    near = (tl.load(s.local + number) > 1) | (tl.load(s.sink + number) > 0)
    return without | near | (tl.load(s.segment + number) > 0)


@triton.jit(do_not_specialize=["plane", "classes"])  # of every prompt's own
def class_kernel(
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
def band_kernel(
    a, plane, s,
    APART: tl.constexpr, PAIR: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr,
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
            DIM, PADDED, APART, PAIR, KEYS,
        )  # fmt: skip
        finish(a, head, slots, live, top, total, acc, DIM, PADDED)


def grid(
    states: States, plane: Plane, spacing: Spacings, heads: Tensor, into: Partial, tiles: TileSizes,
    is_pair: bool,
) -> None:  # fmt: skip
    """Attends to evenly spaced lines of a plane, merged into `into`.

    Args:
        is_pair: whether keys are permuted, too.
    """
    count = len(plane.queries)
    a, slots = attention(states, heads, into), permuted(plane)
    strides, has_band = passes(spacing)
    if any(strides):
        fit = tiles.clamp(triton.cdiv(count, min(filter(None, strides))))
        classes = class_table(plane, spacing.stride, strides, fit.rows)
        class_kernel[classes.tiles, len(heads)](
            a, slots, spacing, classes, PAIR=is_pair, **sizes(states, fit)
        )
    if has_band:
        turns = triton.cdiv(count, tiles.narrow.rows)
        constants = sizes(states, tiles.narrow)
        band_kernel[turns, len(heads)](
            a, slots, spacing, APART=not plane.is_whole, PAIR=is_pair, **constants
        )
