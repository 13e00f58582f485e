"""Dense causal attention over a plane."""

# ruff: noqa: N803
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..attention.partial import Partial, States
from ..plane import Plane
from .common import TileSizes, attention, begin, every, finish, sizes, slots_of
from .indices import permuted


@triton.jit(do_not_specialize=["plane", "start"])  # of every prompt's own
def dense_kernel(
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


def dense(
    states: States, plane: Plane, heads: Tensor, into: Partial, first: Tensor, start: int,
    tiles: TileSizes, is_pair: bool,
) -> None:  # fmt: skip
    """Attends to all causal pairs of a plane, merged into `into`.

    Args:
        first: place of the first query that takes part, `[heads]`, int32.
        start: the least of them.
        is_pair: whether keys are permuted, too.
    """
    a = attention(states, heads, into)
    turns = triton.cdiv(len(plane.queries) - start, tiles.rows)
    dense_kernel[turns, len(heads)](
        a, permuted(plane), first, start, PAIR=is_pair, **sizes(states, tiles)
    )
