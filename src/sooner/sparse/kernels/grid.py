"""Grid attention over a plane (MMInference, algorithm 5).

Two kernels, as in the paper: one loads queries sparsely, a tile holding rows of one class only, so
that a line of the grid is a dense causal block; the other loads rows as they stand. They go on from
one another's state and never count a pair twice.
"""

# ruff: noqa: N803
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

from ..attention.partial import Partial, States
from ..patterns import Spacing
from ..plane import PlaneStack
from .common import TileSizes, attention, begin, cell_of, every, finish, sizes, slots_of, step
from .dense import dense, most_parts
from .indices import Spacings, class_order, kernel_planes

NO_STRIDE = 64  # what the size of a tile goes by where a stride is only known on the device


@triton.jit
def load_int(column, number):
    """Returns an entry of a head; all of them fit into 31 bits."""
    return tl.load(column + number).to(tl.int32)


@triton.jit
def is_classed(s, number):
    """Whether a head has lines for which rows are sorted by class."""
    return (load_int(s.hline, number) > 0) | (load_int(s.slash, number) > 0)


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
    stride = load_int(s.stride, number)
    phase = load_int(s.phase, number)
    slash = load_int(s.slash, number) > 0
    vline = load_int(s.vline, number) > 0
    if (load_int(s.hline, number) > 0) & (current == phase):
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
    slash = load_int(s.slash, number) > 0
    vline = load_int(s.vline, number) > 0
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
    """Nearest keys and the sink, less what lines have counted.

    A head without lines of a class has its vertical line here, as rows need not be sorted for it.

    Args:
        APART: whether frontiers of a tile may lie far apart.
    """
    stride = load_int(s.stride, number)
    phase = load_int(s.phase, number)
    if (is_classed(s, number) == 0) & (load_int(s.vline, number) > 0):
        top, total, acc = every(
            a, kv_head, q, frontier, live, phase, stride, keys, top, total, acc,
            DIM, PADDED, PERMUTED, KEYS,
        )  # fmt: skip
    begin_at = tl.maximum(frontier - load_int(s.local, number) + 1, 0)
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
    sink = tl.minimum(load_int(s.sink, number), high + 1)
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
    is_phase = frontier % load_int(s.stride, number) == load_int(s.phase, number)
    return (load_int(s.hline, number) > 0) & is_phase


@triton.jit
def is_visible(s, number):
    """Whether a head has a part that is not a class."""
    without = load_int(s.slash, number) == 0
    return without | (load_int(s.local, number) > 1) | (load_int(s.sink, number) > 0)


@triton.jit(do_not_specialize=["plane", "order"])  # of every prompt's own
def class_kernel(
    a, plane, s, order,
    APART: tl.constexpr, PAIR: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Runs a tile of the plane's queries that share a class: steps of a stride through `order`,
    save horizontal lines that are `APART`, or queries that share a frontier, as words behind a
    video do."""
    head, row, _, number = cell_of(a)
    stride = load_int(s.stride, number)
    entries = tl.load(order.sizes + row * 2)
    jump = tl.where(tl.load(order.sizes + row * 2 + 1) > 0, stride, 1)
    tiles = tl.cdiv(tl.cdiv(entries, jump), ROWS)  # of a class
    turn = tl.num_programs(0) - 1 - tl.program_id(0)
    first = turn // tiles
    mine = is_classed(s, number) & (first < jump)
    if APART:
        is_line = (load_int(s.hline, number) > 0) & (first == load_int(s.phase, number))
        mine = mine & ((is_line & (tl.load(order.sizes + row * 2 + 1) > 0)) == 0)
    if mine:
        entry = first + (turn % tiles * ROWS + tl.arange(0, ROWS)) * jump
        at = order.places + row * order.entries + entry
        places = tl.load(at, mask=entry < entries, other=-1)
        live = places >= 0
        frontier = tl.load(plane.frontier + row * plane.length + places, mask=live, other=-1)
        last = tl.max(frontier, 0)
        if last >= 0:
            slots = slots_of(places, plane.queries + row * plane.length, live, True)
            q, top, total, acc = begin(a, head, slots, live, DIM, PADDED)
            top, total, acc = class_step(
                a, s, number, head // a.group, q, frontier, live, last % stride,
                plane.keys + row * plane.width, top, total, acc, DIM, PADDED, PAIR, KEYS,
            )  # fmt: skip
            finish(a, head, slots, live, top, total, acc, DIM, PADDED)


@triton.jit(do_not_specialize=["plane"])  # of every prompt's own
def band_kernel(
    a, plane, s,
    APART: tl.constexpr, PAIR: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Runs a tile of the plane's queries in their order."""
    head, row, _, number = cell_of(a)
    if is_visible(s, number):
        tile = tl.num_programs(0) - 1 - tl.program_id(0)
        places = tile * ROWS + tl.arange(0, ROWS)
        there = places < tl.load(plane.sizes + row)
        frontier = tl.load(plane.frontier + row * plane.length + places, mask=there, other=-1)
        live = there & (frontier >= 0) & (all_seen(s, number, frontier) == 0)
        slots = slots_of(places, plane.queries + row * plane.length, live, True)
        q, top, total, acc = begin(a, head, slots, live, DIM, PADDED)
        top, total, acc = band_step(
            a, s, number, head // a.group, q, frontier, live, plane.keys + row * plane.width,
            top, total, acc, DIM, PADDED, APART, PAIR, KEYS,
        )  # fmt: skip
        finish(a, head, slots, live, top, total, acc, DIM, PADDED)


def grid(
    states: States, stack: PlaneStack, spacing: Spacings, drawn: Sequence[Spacing], cells: Tensor,
    into: Partial, tiles: TileSizes,
) -> None:  # fmt: skip
    """Attends to evenly spaced lines of planes, merged into `into`.

    Args:
        drawn: what is known of the cells' spacings on the host.
        cells: see `KernelStates`.
    """
    a, planes, count = attention(states, cells, into), kernel_planes(stack), cells.shape[1]
    classed = [s for s in drawn if s.has_classes]
    if classed:
        shortest = min(s.stride or NO_STRIDE for s in classed)
        fit = tiles.clamp(triton.cdiv(max(stack.length, stack.width), shortest))
        order = class_order(stack, fit.rows)
        turns = triton.cdiv(order.entries, fit.rows) + max(max(s.stride, s.limit) for s in classed)
        crossed = [s for s in drawn if s.hline] if most_parts(stack) > 1 else []
        if crossed:  # a stride that is only known on the device is 2 or more
            strides = min(s.stride or 2 for s in crossed), max(s.stride or s.limit for s in crossed)
            lengths = [triton.cdiv(stack.width, stride) for stride in strides]
            dense(states, stack, cells, into, lengths, fit, spacing, order)
        options = sizes(states, fit) | {"APART": bool(crossed), "PAIR": stack.moves_keys}
        class_kernel[turns, count](a, planes, spacing, order, **options)
    if any(s.has_band for s in drawn):
        narrow = tiles.narrow
        band_kernel[triton.cdiv(stack.length, narrow.rows), count](
            a,
            planes,
            spacing,
            APART=not all(plane.is_whole for plane in stack.planes),
            PAIR=stack.moves_keys,
            **sizes(states, narrow),
        )
