"""Dense causal attention over a plane that is not permuted."""

# ruff: noqa: N803
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..attention.partial import Partial, States
from ..plane import Plane
from .common import INTERPRETED, TileSizes, attention, begin, every, finish, sizes


@triton.jit(do_not_specialize=["start", "count"])  # of every prompt's own
def dense_kernel(
    a, first, start, count,
    DIM: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Runs a tile of queries from place `start` on against all keys before them."""
    number = tl.program_id(1)
    tile = tl.num_programs(0) - 1 - tl.program_id(0)  # the longest first
    places = start + tile * ROWS + tl.arange(0, ROWS)
    live = (places >= tl.load(first + number)) & (places < count)
    head = tl.load(a.heads + number)
    slots = places.to(tl.int64)
    q, top, total, acc = begin(a, head, slots, live, DIM, PADDED)
    top, total, acc = every(
        a, head // a.group, q, places, live, 0, 1, a.heads, top, total, acc,
        DIM, PADDED, False, KEYS,
    )  # fmt: skip
    finish(a, head, slots, live, top, total, acc, DIM, PADDED)


def dense(
    states: States, plane: Plane, heads: Tensor, into: Partial, first: Tensor, start: int,
    tiles: TileSizes,
) -> None:  # fmt: skip
    """Attends to all causal pairs of a whole plane, merged into `into`.

    Args:
        first: place of the first query that takes part, `[heads]`, int32.
        start: the least of them.
    """
    count = len(plane.queries)
    a = attention(states, heads, into, INTERPRETED)
    grid = (triton.cdiv(count - start, tiles.rows), len(heads))
    dense_kernel[grid](a, first, start, count, **sizes(states, tiles))
