"""What the Triton kernels share: arguments, tiles, reduction, and dense attention itself."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...engine.attention.kernel import INTERPRETED, LOG2E
from ...errors import SoonerError
from ..attention.partial import Partial, States
from ..plane import PlaneStack
from .indices import kernel_planes


@dataclass(frozen=True)
class TileSizes:
    """Says how a kernel cuts its work.

    The defaults fit the shared memory of an A100 (163 KiB a block), so also that of an H100 or an
    H200. To tune, time `sooner bench gpu --section prefill` with other sizes in `tiles_for`: more
    warps for larger tiles, fewer stages when memory runs out.

    Attributes:
        rows: queries of a tile, a power of two of 16 or more.
        keys: keys of a step, likewise.
        warps: of a tile.
        stages: steps whose loads are under way at once.
    """

    rows: int = 128
    keys: int = 64
    warps: int = 8
    stages: int = 3

    def clamp(self, rows: int) -> TileSizes:
        """Returns the tile with no more rows than there is work for."""
        fit = max(16, 1 << max(rows - 1, 0).bit_length())
        if fit >= self.rows:
            return self
        return replace(self, rows=fit, warps=min(self.warps, 4))

    @property
    def narrow(self) -> TileSizes:
        """Returns the tile with fewer queries and keys, for a mask that takes registers, too."""
        return replace(self, rows=min(self.rows, 64), keys=min(self.keys, 32))


def tiles_for(states: States) -> TileSizes:
    """Returns the sizes for a head dimension and dtype: of bf16 up to 128 dims nothing spills on
    sm_90, by what the compiler reports, and 56 bytes in one kernel on sm_80
    (`tests/kernels/test_sparse_compile.py`).
    """
    head_dim, wide = states.queries.shape[-1], states.queries.dtype == torch.float32
    if head_dim <= 64:
        return TileSizes(64, 32, 4, 2) if wide else TileSizes(128, 64, 8, 3)
    if head_dim <= 128:
        return TileSizes(64, 32, 8, 2) if wide else TileSizes(128, 32, 8, 3)
    return TileSizes(32, 16, 4, 2) if wide else TileSizes(64, 32, 4, 2)


KIND = (torch.float16, torch.bfloat16, torch.float32)


class StridedRows(NamedTuple):
    """A tensor `[heads, tokens, ...]` that a kernel reads by its memory and the strides of heads
    and tokens."""

    at: Tensor
    head: int
    token: int


class KernelStates(NamedTuple):
    """The states of a row and where the result goes; `scale` is that of scores in base 2.

    `cells` are heads, planes, places of a first query and places in an index, `[4, pitch]`.

    (A field must not be called `values`: Triton's tuples have an attribute of that name.)
    """

    q: StridedRows
    k: StridedRows
    v: StridedRows
    out: StridedRows
    lse: StridedRows
    cells: Tensor
    pitch: int
    group: int
    scale: float


def attention(states: States, cells: Tensor, into: Partial) -> KernelStates:
    """Returns the first argument of every kernel. Nothing is copied if head dimensions are
    contiguous; but bfloat16 becomes fp32 for Triton's interpreter, which does not know it.

    Raises:
        SoonerError: a dtype that no kernel reads.
    """
    parts = [states.queries, states.keys, states.values]
    if parts[0].dtype not in KIND or any(part.dtype != parts[0].dtype for part in parts):
        dtypes = ", ".join(str(part.dtype).removeprefix("torch.") for part in parts)
        raise SoonerError(f"kernels read states of one dtype, fp16, bf16 or fp32, not {dtypes}")
    if INTERPRETED and parts[0].dtype == torch.bfloat16:
        parts = [part.float() for part in parts]
    scale = states.scale * math.log2(math.e)
    q, k, v = (_rows(part if part.stride(-1) == 1 else part.contiguous()) for part in parts)
    out, lse = _rows(into.output), _rows(into.lse)
    return KernelStates(q, k, v, out, lse, cells, cells.shape[1], states.group, scale)


def _rows(tensor: Tensor) -> StridedRows:
    return StridedRows(tensor, tensor.stride(0), tensor.stride(1))


def sizes(states: States, tiles: TileSizes) -> dict[str, Any]:
    """Returns constants of a launch."""
    dim = states.queries.shape[-1]
    return {
        "DIM": dim,
        "PADDED": max(16, 1 << (dim - 1).bit_length()),
        "ROWS": tiles.rows,
        "KEYS": tiles.keys,
        "num_warps": tiles.warps,
        "num_stages": tiles.stages,
    }


# ruff: noqa: N803
# mypy: disable-error-code="no-untyped-def"

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
    at = a.lse.at + head.to(tl.int64) * a.lse.head + slots * a.lse.token
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
    at = a.lse.at + head.to(tl.int64) * a.lse.head + slots * a.lse.token
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


@triton.jit
def cell_of(a):
    """Returns head, plane, place of the first query and place in the index of a program's cell."""
    at = a.cells + tl.program_id(1)
    head = tl.load(at).to(tl.int32)
    number = tl.load(at + 3 * a.pitch).to(tl.int32)
    return head, tl.load(at + a.pitch), tl.load(at + 2 * a.pitch).to(tl.int32), number


@triton.jit(do_not_specialize=["plane", "start"])  # of every prompt's own
def dense_kernel(
    a, plane, start,
    PAIR: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):  # fmt: skip
    """Runs a tile of the plane's queries from place `start` on."""
    head, row, first, _ = cell_of(a)
    tile = tl.num_programs(0) - 1 - tl.program_id(0)  # the longest first
    places = start + tile * ROWS + tl.arange(0, ROWS)
    live = (places >= first) & (places < tl.load(plane.sizes + row))
    frontier = tl.load(plane.frontier + row * plane.length + places, mask=live, other=-1)
    slots = slots_of(places, plane.queries + row * plane.length, live, True)
    q, top, total, acc = begin(a, head, slots, live, DIM, PADDED)
    top, total, acc = every(
        a, head // a.group, q, frontier, live, 0, 1, plane.keys + row * plane.width,
        top, total, acc, DIM, PADDED, PAIR, KEYS,
    )  # fmt: skip
    finish(a, head, slots, live, top, total, acc, DIM, PADDED)


def dense(
    states: States, stack: PlaneStack, cells: Tensor, into: Partial, start: int, tiles: TileSizes,
) -> None:  # fmt: skip
    """Attends to all causal pairs of planes, merged into `into`.

    Args:
        cells: see `KernelStates`.
        start: the least of their first places.
    """
    turns = triton.cdiv(stack.length - start, tiles.rows)
    dense_kernel[turns, cells.shape[1]](
        attention(states, cells, into), kernel_planes(stack), start, PAIR=stack.moves_keys,
        **sizes(states, tiles),
    )  # fmt: skip
