"""What the Triton kernels share: arguments, tiles, reduction, and dense attention itself."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...engine.attention.kernel import INTERPRETED, LOG2E, on_device
from ...errors import SoonerError
from ..attention.partial import Partial, States


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

    rows: int = 64
    keys: int = 64
    warps: int = 4
    stages: int = 3

    def clamp(self, rows: int) -> TileSizes:
        """Returns the tile with no more rows than there is work for."""
        fit = max(16, 1 << max(rows - 1, 0).bit_length())
        if fit >= self.rows:
            return self
        return replace(self, rows=fit, warps=min(self.warps, 4))

    @property
    def narrow(self) -> TileSizes:
        """Returns the tile with half the keys, for a mask that takes registers, too."""
        return replace(self, keys=max(self.keys // 2, 16))


def tiles_for(states: States) -> TileSizes:
    """Returns the sizes for a head dimension and dtype: of bf16 up to 128 dims nothing spills on
    sm_90, and two tiles of every kernel fit a multiprocessor, so that one computes while the other
    waits; by what the compiler reports (`tests/kernels/test_sparse_compile.py`).
    """
    head_dim, wide = states.queries.shape[-1], states.queries.dtype == torch.float32
    if head_dim <= 64:
        return TileSizes(64, 32, 4, 2) if wide else TileSizes(64, 64, 4, 3)
    if head_dim <= 128:
        return TileSizes(64, 32, 8, 2) if wide else TileSizes(64, 32, 4, 3)
    return TileSizes(32, 16, 4, 2) if wide else TileSizes(64, 32, 4, 2)


KIND = (torch.float16, torch.bfloat16, torch.float32)


class StridedRows(NamedTuple):
    """A tensor `[rows, heads, tokens, ...]` that a kernel reads by its memory, the strides of rows,
    heads and tokens, and the number of heads."""

    at: Tensor
    row: int
    head: int
    token: int
    heads: int


class KernelStates(NamedTuple):
    """The states of some rows and where the result goes; `scale` is that of scores in base 2.

    `cells` are heads, planes, places of a first query, places in an index, and buffers in `out`,
    `[5, pitch]`. Heads are counted on from row to row. Without a buffer, -1, a result is `final`.

    (A field must not be called `values`: Triton's tuples have an attribute of that name.)
    """

    q: StridedRows
    k: StridedRows
    v: StridedRows
    out: StridedRows
    final: StridedRows
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
    parts = [part.to(readable(part.dtype)) for part in parts]
    scale = states.scale * math.log2(math.e)
    parts = [part if part.stride(-1) == 1 else part.contiguous() for part in parts]
    parts += [into.output, into.output if into.final is None else into.final, into.lse[..., None]]
    q, k, v, out, final, lse = map(_rows, parts)
    return KernelStates(q, k, v, out, final, lse, cells, cells.stride(0), states.group, scale)


def readable(dtype: torch.dtype) -> torch.dtype:
    """Returns what a dtype becomes for the kernels: fp32 in place of bf16 in the interpreter."""
    return torch.float32 if INTERPRETED and dtype == torch.bfloat16 else dtype


def _rows(tensor: Tensor) -> StridedRows:
    """Returns `[heads, tokens, ...]`, with rows in front or of one row."""
    whole = tensor if tensor.dim() == 4 else tensor[None]
    row, head, token, _ = whole.stride()
    return StridedRows(whole, row, head, token, max(whole.shape[1], 1))


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
def tokens_of(tensor, head, slots):
    """Returns where some tokens of a head begin, `[slots]`."""
    # In int64: tokens x heads x head_dim outgrows 31 bits at a million tokens.
    row, head = (head // tensor.heads).to(tl.int64), (head % tensor.heads).to(tl.int64)
    return tensor.at + row * tensor.row + head * tensor.head + slots * tensor.token


@triton.jit
def load_rows(tensor, head, slots, there, DIM: tl.constexpr, PADDED: tl.constexpr):
    """Rows of one head, `[slots, PADDED]`; zeros where nothing is `there`."""
    dims = tl.arange(0, PADDED)
    at = tokens_of(tensor, head, slots)[:, None] + dims[None, :]
    return tl.load(at, mask=there[:, None] & (dims < DIM)[None, :], other=0.0)


@triton.jit
def buffer_of(a):
    """Returns the buffer of a program's head, -1 if nothing is added to what it writes."""
    return tl.load(a.cells + 4 * a.pitch + tl.program_id(1)).to(tl.int32)


@triton.jit
def slots_of(places, order, there, PERMUTED: tl.constexpr):
    """Slots in the prompt of places in a plane, through the plane's array if it has one."""
    if PERMUTED:
        slots = tl.load(order + places, mask=there, other=0).to(tl.int64)
    else:
        slots = places.to(tl.int64)
    return slots


@triton.jit
def begin(a, head, slots, live, DIM: tl.constexpr, PADDED: tl.constexpr, part=0):
    """Queries, and the state that earlier kernels have left in the result, which part 0 adds to."""
    q = load_rows(a.q, head, slots, live, DIM, PADDED)
    buffer = tl.where(part == 0, buffer_of(a), -1)
    before = tl.load(tokens_of(a.lse, head, slots), mask=live, other=float("-inf"))
    before = tl.where(buffer >= 0, before, float("-inf"))
    known = before > float("-inf")
    acc = load_rows(a.out, buffer, slots, known, DIM, PADDED)
    return q, before * LOG2E, tl.where(known, 1.0, 0.0), acc


@triton.jit
def finish(a, head, slots, live, top, total, acc, DIM: tl.constexpr, PADDED: tl.constexpr):
    """Write the state back to where the queries came from; rows that saw nothing stay as is."""
    live = live & (total > 0)
    total = tl.where(live, total, 1.0)
    dims = tl.arange(0, PADDED)
    inside = live[:, None] & (dims < DIM)[None, :]
    acc, buffer = acc / total[:, None], buffer_of(a)
    if buffer < 0:
        at = tokens_of(a.final, head, slots)[:, None] + dims[None, :]
        tl.store(at, acc.to(a.final.at.dtype.element_ty), mask=inside)
    else:
        tl.store(tokens_of(a.out, buffer, slots)[:, None] + dims[None, :], acc, mask=inside)
    tl.store(tokens_of(a.lse, head, slots), (top + tl.log2(total)) * LN2, mask=live)


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
    part=0, parts=1,
):  # fmt: skip
    """Attend causally to every `stride`-th key from rank `first` on, `first < stride`.

    With `0, 1` this is dense attention, with a class and its stride a line of a grid. Keys that
    all rows see go without a mask. Of several `parts` of these keys, which are about as long, it
    attends to one.
    """
    low = tl.min(tl.where(live, frontier, 2147483647), 0)
    high = tl.max(tl.where(live, frontier, -1), 0)
    low = tl.minimum(low, high)  # no live row: nothing to do
    full = (low - first + stride) // stride // KEYS * KEYS
    count = (high - first + stride) // stride
    share = tl.cdiv(tl.cdiv(count, KEYS), parts) * KEYS
    begin_at, count = part * share, tl.minimum(count, (part + 1) * share)
    member = tl.arange(0, KEYS)
    for start in range(begin_at, tl.minimum(full, count), KEYS):
        ranks = first + (start + member) * stride
        there = member >= 0
        top, total, acc = step(
            a, head, q, ranks, there, there, keys, top, total, acc, DIM, PADDED, PERMUTED, False
        )
    for start in range(tl.maximum(full, begin_at), count, KEYS):
        ranks = first + (start + member) * stride
        seen = ranks[None, :] <= frontier[:, None]
        there = ranks <= high
        top, total, acc = step(
            a, head, q, ranks, there, seen, keys, top, total, acc, DIM, PADDED, PERMUTED, True
        )
    return top, total, acc


CLEARED = 4096
"""Numbers that a program of `clear_kernel` fills."""


@triton.jit(do_not_specialize=["finals", "sums", "buffered"])
def clear_kernel(final, lse, buffers, finals, sums, buffered, BLOCK: tl.constexpr):
    """Fills three flat arrays of these lengths: log-sum-exps with minus infinity, others with 0."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    zeros = tl.full((BLOCK,), 0.0, tl.float32)
    tl.store(final + at, zeros.to(final.dtype.element_ty), mask=at < finals)
    tl.store(lse + at, zeros - float("inf"), mask=at < sums)
    tl.store(buffers + at, zeros, mask=at < buffered)


def cleared(states: States, buffered: int) -> tuple[Partial, Tensor]:
    """Returns what a layer writes to, before anything was seen, with so many buffers, and its
    output, `[rows, heads, tokens, head_dim]`."""
    rows, heads, tokens, dim = states.queries.shape
    dtype, new = readable(states.queries.dtype), states.queries.new_empty
    final = new(rows, tokens, heads, dim, dtype=dtype)  # tokens before heads in memory
    lse = new(rows, heads, tokens, dtype=torch.float32)
    buffers = new(buffered, tokens, dim, dtype=torch.float32)
    parts = final, lse, buffers
    counts = [part.numel() for part in parts]
    with on_device(final):
        clear_kernel[(triton.cdiv(max(counts), CLEARED), 1)](*parts, *counts, BLOCK=CLEARED)
    output = final.transpose(1, 2)
    return Partial(buffers, lse, output), output


@triton.jit
def cell_of(a):
    """Returns head, plane, place of the first query and place in the index of a program's cell."""
    at = a.cells + tl.program_id(1)
    head = tl.load(at).to(tl.int32)
    number = tl.load(at + 3 * a.pitch).to(tl.int32)
    return head, tl.load(at + a.pitch), tl.load(at + 2 * a.pitch).to(tl.int32), number
