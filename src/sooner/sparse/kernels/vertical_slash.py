"""Vertical-slash attention over a plane that is not permuted (MInference's kernel, our indices)."""

# ruff: noqa: N803
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..attention.partial import Partial, States
from ..plane import Plane
from .common import INTERPRETED, TileSizes, attention, begin, finish, sizes, step
from .indices import LineLists


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


@triton.jit(do_not_specialize=["lists", "count"])  # of every prompt's own
def vertical_slash_kernel(
    a, lists, count,
    DIM: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """A tile of queries of one block; where queries are keys, places are frontiers."""
    number = tl.program_id(1)
    tile = tl.num_programs(0) - 1 - tl.program_id(0)  # the longest first
    places = tile * ROWS + tl.arange(0, ROWS)
    live = places < tl.minimum(tl.load(lists.last + number), count)
    if tile * ROWS < tl.load(lists.last + number):
        head = tl.load(a.heads + number)
        slots = places.to(tl.int64)
        q, top, total, acc = begin(a, head, slots, live, DIM, PADDED)
        top, total, acc = lines_step(
            a, lists, number, head // a.group, q, tl.where(live, places, -1), tile * ROWS // BLOCK,
            a.heads, top, total, acc, DIM, PADDED, False, KEYS, BLOCK,
        )  # fmt: skip
        finish(a, head, slots, live, top, total, acc, DIM, PADDED)


def vertical_slash(
    states: States, plane: Plane, lists: LineLists, block: int, heads: Tensor, into: Partial,
    tiles: TileSizes,
) -> None:  # fmt: skip
    """Attends to lines of a whole plane, without the last queries that see everything.

    Args:
        tiles: its rows divide `block`, and so do its keys.
    """
    count = len(plane.queries)
    a = attention(states, heads, into, INTERPRETED)
    grid = (triton.cdiv(count, tiles.rows), len(heads))
    vertical_slash_kernel[grid](a, lists, count, BLOCK=block, **sizes(states, tiles))
