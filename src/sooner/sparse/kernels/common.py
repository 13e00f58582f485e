"""Device functions that the kernels share: rows by slot, the online softmax, runs of keys.

Names follow the planes: a *rank* is a key's place among the plane's keys, a *slot* its place in the
prompt, a *frontier* the last rank that a query sees. State is `(top, total, acc)`: each row's
largest score in base 2, the sum of `2^(score - top)`, and that sum weighted by values.
"""

# ruff: noqa: N803
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def load_rows(tensor, head, slots, there, DIM: tl.constexpr, PADDED: tl.constexpr):
    """Rows of one head, `[slots, PADDED]`; zeros where nothing is `there`."""
    dims = tl.arange(0, PADDED)
    # Slots are int64: tokens x heads x head_dim outgrows 31 bits at a million tokens.
    at = tensor.at + head.to(tl.int64) * tensor.head + slots[:, None] * tensor.token + dims[None, :]
    return tl.load(at, mask=there[:, None] & (dims < DIM)[None, :], other=0.0)


@triton.jit
def slots_of(places, order, there, PERMUTED: tl.constexpr):
    """Slots in the prompt of places in a plane, through the plane's array if it has one."""
    if PERMUTED:
        slots = tl.load(order + places, mask=there, other=0).to(tl.int64)
    else:
        slots = places.to(tl.int64)
    return slots


@triton.jit
def begin(a, head, slots, live, DIM: tl.constexpr, PADDED: tl.constexpr):
    """Queries, and the state that earlier parts have left in the result, to go on from there."""
    q = load_rows(a.q, head, slots, live, DIM, PADDED)
    at = a.mass.at + head.to(tl.int64) * a.mass.head + slots * a.mass.token
    before = tl.load(at, mask=live, other=float("-inf"))
    known = before > float("-inf")
    acc = load_rows(a.out, head, slots, known, DIM, PADDED)
    return q, before * LOG2E, tl.where(known, 1.0, 0.0), acc


@triton.jit
def finish(a, head, slots, live, top, total, acc, DIM: tl.constexpr, PADDED: tl.constexpr):
    """Write the state back to where the queries came from; rows that saw nothing stay as is."""
    live = live & (total > 0)
    total = tl.where(live, total, 1.0)
    dims = tl.arange(0, PADDED)
    row = a.out.at + head.to(tl.int64) * a.out.head + slots[:, None] * a.out.token
    inside = live[:, None] & (dims < DIM)[None, :]
    tl.store(row + dims[None, :], acc / total[:, None], mask=inside)
    at = a.mass.at + head.to(tl.int64) * a.mass.head + slots * a.mass.token
    tl.store(at, (top + tl.log2(total)) * LN2, mask=live)


@triton.jit
def absorb(scores, v, top, total, acc):
    """One step of the online softmax; scores in base 2, minus infinity where a pair is unseen."""
    best = tl.maximum(top, tl.max(scores, 1))
    base = tl.where(best == float("-inf"), 0.0, best)  # a row that has seen nothing yet
    weights = tl.exp2(scores - base[:, None])
    shrink = tl.exp2(top - base)
    total = total * shrink + tl.sum(weights, 1)
    acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return best, total, acc


@triton.jit
def step(
    a, head, q, ranks, there, seen, keys, top, total, acc,
    DIM: tl.constexpr, PADDED: tl.constexpr, PERMUTED: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Attend to the keys of some ranks.

    Args:
        head: of the keys.
        there: which ranks are to be loaded, `[KEYS]`.
        seen: which pairs count, `[ROWS, KEYS]`; not read unless `MASKED`.
    """
    slots = slots_of(ranks, keys, there, PERMUTED)
    k = load_rows(a.k, head, slots, there, DIM, PADDED)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * a.scale
    if MASKED:
        scores = tl.where(seen, scores, float("-inf"))
    v = load_rows(a.v, head, slots, there, DIM, PADDED)
    return absorb(scores, v, top, total, acc)


@triton.jit
def every(
    a, head, q, frontier, live, first, stride, keys, top, total, acc,
    DIM: tl.constexpr, PADDED: tl.constexpr, PERMUTED: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Attend causally to every `stride`-th key from rank `first` on, `first < stride`.

    With `0, 1` this is dense attention, with a class and its stride a line of a grid. Keys that
    all rows see go without a mask.
    """
    low = tl.min(tl.where(live, frontier, 2147483647), 0)
    high = tl.max(tl.where(live, frontier, -1), 0)
    low = tl.minimum(low, high)  # no live row: nothing to do
    full = (low - first + stride) // stride // KEYS * KEYS
    count = (high - first + stride) // stride
    member = tl.arange(0, KEYS)
    for start in range(0, full, KEYS):
        ranks = first + (start + member) * stride
        there = member >= 0
        top, total, acc = step(
            a, head, q, ranks, there, there, keys, top, total, acc, DIM, PADDED, PERMUTED, False
        )
    for start in range(full, count, KEYS):
        ranks = first + (start + member) * stride
        seen = ranks[None, :] <= frontier[:, None]
        there = ranks <= high
        top, total, acc = step(
            a, head, q, ranks, there, seen, keys, top, total, acc, DIM, PADDED, PERMUTED, True
        )
    return top, total, acc
