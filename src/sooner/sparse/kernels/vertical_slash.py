"""Vertical-slash attention over a plane (MInference's kernel, our indices)."""

# ruff: noqa: N803
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..attention.partial import Partial, States
from ..plane import Plane
from .common import TileSizes, attention, begin, finish, sizes, slots_of, step
from .indices import LineLists, block_table, permuted


@triton.jit
def lines_step(
    a, lists, number, kv_head, q, frontier, block, keys, top, total, acc,
    DIM: tl.constexpr, PADDED: tl.constexpr, PERMUTED: tl.constexpr, KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Attend to what queries of one block of frontiers see: the block, its windows, then columns.

    As all rows share `frontier // BLOCK`, one list of windows serves them, and only the block
    itself needs causality. A window is cut where the prompt begins and where the block does.

    Args:
        number: the head's place in the lists.
        block: `frontier // BLOCK` of every row.
    """
    member = tl.arange(0, KEYS)
    parts: tl.constexpr = BLOCK // KEYS
    row = number * lists.blocks
    begin_rank = block * BLOCK
    high = tl.max(frontier, 0)
    for part in range(0, parts):
        ranks = begin_rank + part * KEYS + member
        seen = ranks[None, :] <= frontier[:, None]
        top, total, acc = step(
            a, kv_head, q, ranks, ranks <= high, seen, keys, top, total, acc,
            DIM, PADDED, PERMUTED, True,
        )  # fmt: skip
    reach = tl.load(lists.reach + row + block)
    for place in range(0, reach * parts):
        first = tl.load(lists.windows + number * lists.maximum + place // parts)
        apart = first - place % parts * KEYS - member
        there = (apart > 0) & (apart <= begin_rank)
        top, total, acc = step(
            a, kv_head, q, begin_rank - apart, there, there[None, :], keys, top, total, acc,
            DIM, PADDED, PERMUTED, True,
        )  # fmt: skip
    count = tl.load(lists.before + row + block)
    covered_row = lists.covered + number.to(tl.int64) * lists.keys
    for start in range(0, count, KEYS):
        there = start + member < count
        ranks = tl.load(lists.columns + number * lists.lines + start + member, mask=there, other=0)
        covered = tl.load(covered_row + begin_rank - ranks - 1, mask=there, other=1)
        there = covered == 0
        top, total, acc = step(
            a, kv_head, q, ranks, there, there[None, :], keys, top, total, acc,
            DIM, PADDED, PERMUTED, True,
        )  # fmt: skip
    return top, total, acc


@triton.jit(do_not_specialize=["plane", "lists"])  # of every prompt's own
def vertical_slash_kernel(
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


def vertical_slash(
    states: States, plane: Plane, lists: LineLists, block: int, heads: Tensor, into: Partial,
    tiles: TileSizes, is_pair: bool,
) -> None:  # fmt: skip
    """Attends to lines of a plane, without the last queries that see everything.

    Args:
        tiles: its rows divide `block`, and so do its keys.
        is_pair: whether keys are permuted, too.
    """
    a = attention(states, heads, into)
    table = block_table(plane, block, tiles.rows)
    vertical_slash_kernel[len(table), len(heads)](
        a, permuted(plane), lists, table, BLOCK=block, PAIR=is_pair, **sizes(states, tiles)
    )
