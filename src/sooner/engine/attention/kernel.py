"""Block attention on GPUs: a split-KV decode kernel (flash decoding) and the merge of splits."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .block import PAGE, Block
from .block import WORDS as ANCESTOR_WORDS

INTERPRETED = bool(triton.knobs.runtime.interpret)
"""Whether Triton's interpreter runs the kernels, as `TRITON_INTERPRET` said when this was read."""

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
MAX_DIMS = 256
MAX_SPLITS = 64


@dataclass(frozen=True)
class Config:
    """How the kernel cuts its work; fixed by shapes, so that a captured graph stays right.

    Attributes:
        rows: packed queries (entries x the query heads of a key head) of a tile.
        keys: slots of a step; divides `PAGE`.
        warps: of a tile.
        stages: steps whose loads are under way at once.
    """

    rows: int
    keys: int
    warps: int
    stages: int

    def stages_of(self, is_paged: bool) -> int:
        """Returns what the compiler has to be given for them.

        Keys in pages are loaded from where another load says. It gives each of the two half of the
        stages behind the first, rounded down, so that of three none would be loaded ahead.
        """
        return 2 * self.stages - 1 if is_paged else self.stages


def config_for(queries: int, dim: int, dtype: torch.dtype) -> Config:
    """Returns the tile of `queries` packed queries.

    Chosen by what the compiler reports for sm_80 and sm_90: nothing spilled, and two tiles a
    multiprocessor up to 128 dims. Up to 64 queries are one tile and read the keys once; the tiles
    of more run side by side over the same split, so that all but the first read them from cache.
    """
    rows = min(max(16, triton.next_power_of_2(queries)), 64 if dim <= 128 else 32)
    if dtype == torch.float32:  # not a decoder's dtype on GPUs; correct, not tuned
        return Config(min(rows, 32), 32 if dim <= 128 else 16, 4, 2)
    if dim <= 128:
        return Config(rows, 32 if rows == 64 and dim > 64 else 64, 4, 3)
    return Config(rows, 32, 4, 2) if rows == 16 else Config(rows, 16, 8, 3)


def supports(query: Tensor, block: Block) -> bool:
    """Returns whether the kernel takes these queries (bf16, fp16 or fp32, at most 256 dims) and as
    many ancestor bits.
    """
    fits = block.ancestors is None or block.ancestors.shape[2] == ANCESTOR_WORDS
    return fits and query.dtype in DTYPES and query.shape[-1] <= MAX_DIMS


@lru_cache
def _processors(device: torch.device) -> int:
    if device.type != "cuda":  # the interpreter: some splits, so that merging is tested
        return 16
    return torch.cuda.get_device_properties(device).multi_processor_count


def splits_for(programs: int, capacity: int, processors: int) -> int:
    """Returns parts that a row's slots are cut into: so many that `programs` fill the GPU twice.

    Known without lengths, which live on the device: a program finds its share of them.

    Args:
        programs: tiles of queries, over all rows and key heads.
        capacity: slots of a row; a part has one page of them at least.
    """
    target = min(2 * processors // programs, -(-capacity // PAGE), MAX_SPLITS)
    return 1 << (max(target, 1).bit_length() - 1)


def attend(
    query: Tensor, keys: Tensor, values: Tensor, block: Block, scale: float,
    window: int | None = None, chunk: int | None = None, softcap: float | None = None,
    sinks: Tensor | None = None, splits: int | None = None,
) -> Tensor:  # fmt: skip
    """Runs `block_attention` on GPUs and reads nothing from the device.

    Args:
        splits: as `splits_for` says unless given.
    """
    rows, heads, entries, dim = query.shape
    kv_heads, capacity = keys.shape[1], keys.shape[2]
    if block.page_table is not None:
        capacity = block.page_table.shape[1] * PAGE
    dtype = query.dtype
    if INTERPRETED and dtype == torch.bfloat16:  # numpy has none
        query, keys, values = query.float(), keys.float(), values.float()
    if query.stride(-1) != 1:
        query = query.contiguous()
    group = heads // kv_heads
    config = config_for(group * entries, dim, dtype)
    tiles = triton.cdiv(group * entries, config.rows)
    if splits is None:
        splits = splits_for(tiles * rows * kv_heads, capacity, _processors(query.device))
    parts = query.new_empty(splits, rows * heads * entries, dim, dtype=torch.float32)
    lse = parts.new_empty(splits, rows * heads * entries)
    output = query.new_empty(rows, entries, heads, dim)
    tensors = [block.sizes, block.ancestors, block.depths, block.page_table, sinks]
    sizes, ancestors, depths, pages, sink = (
        lse if tensor is None else tensor.contiguous() for tensor in tensors
    )
    padded = max(16, triton.next_power_of_2(dim))
    width = padded if padded <= 64 else padded // 2  # columns of values that are added up as one
    with on_device(query):
        split_kernel[(tiles, rows * kv_heads, splits)](
            query, keys, values, parts, lse, block.lengths, sizes, ancestors, depths, pages,
            scale, softcap or 0.0, window or 0, chunk or 0,
            rows, entries, block.written, kv_heads, capacity, capacity // PAGE,
            *query.stride()[:3], *keys.stride()[:3], *values.stride()[:3],
            GROUP=group, DIM=dim, PADDED=padded, WIDTH=width,
            ROWS=config.rows, KEYS=config.keys, MIXED=min(config.keys, 32),
            SIZED=block.sizes is not None, TREE=block.ancestors is not None,
            DEEP=block.depths is not None, PAGED=block.page_table is not None,
            WINDOW=window is not None, CHUNK=chunk is not None, SOFTCAP=softcap is not None,
            num_warps=config.warps, num_stages=config.stages_of(block.page_table is not None),
        )  # fmt: skip
        merge_kernel[(rows * heads * entries,)](
            parts, lse, sink, output, rows * heads * entries, entries, kv_heads,
            GROUP=group, DIM=dim, PADDED=padded, SPLITS=splits, SINKS=sinks is not None,
            num_warps=min(max(splits * padded // 1024, 1), 8),  # 32 numbers a thread, or 64
        )  # fmt: skip
    return output.to(dtype).transpose(1, 2)


def on_device(states: Tensor) -> AbstractContextManager[Any]:
    """Triton launches on the current GPU, which need not be that of the states."""
    is_cuda = states.device.type == "cuda"
    return torch.cuda.device(states.device) if is_cuda else nullcontext()


# ruff: noqa: N803, SIM108
# mypy: disable-error-code="no-untyped-def"

LOG2E = tl.constexpr(math.log2(math.e))
PAGE_SLOTS = tl.constexpr(PAGE)
WORDS = tl.constexpr(ANCESTOR_WORDS)


@triton.jit
def store_row(
    page_table, row, start, pages, row_stride, slot_stride, PAGED: tl.constexpr
):  # fmt: skip
    """Offset of slot `start` of a row in its stores; the slots behind it in a page follow."""
    if PAGED:
        start = tl.cast(start, tl.int32)
        page = tl.load(page_table + row * pages + start // PAGE_SLOTS)
        slot = start % PAGE_SLOTS
        return page.to(tl.int64) * row_stride + slot.to(tl.int64) * slot_stride
    return row.to(tl.int64) * row_stride + tl.cast(start, tl.int64) * slot_stride


@triton.jit
def softmax_step(
    q, k, scale, softcap, seen, top, total, MASKED: tl.constexpr, SOFTCAP: tl.constexpr
):  # fmt: skip
    """Returns the weights of an online softmax step, in base 2, and what sums before shrink by."""
    scores = tl.dot(q, k, input_precision="ieee")
    if SOFTCAP:
        scores = scores * (scale / softcap)
        tanh = 1 - 2 / (tl.exp2(scores * (2 * LOG2E)) + 1)
        scores = tanh * (softcap * LOG2E)
    else:
        scores = scores * (scale * LOG2E)
    if MASKED:
        scores = tl.where(seen, scores, float("-inf"))
    best = tl.maximum(top, tl.max(scores, 1))
    base = tl.where(best == float("-inf"), 0.0, best)  # an entry that has seen nothing yet
    weights = tl.exp2(scores - base[:, None])
    shrink = tl.exp2(top - base)
    return weights, shrink, best, total * shrink + tl.sum(weights, 1)


@triton.jit
def add_values(weights, v, shrink, acc):
    """Returns the sum of weighted values, a step further."""
    return tl.dot(weights.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")


# Numbers that change from call to call, which a launch would compile anew for where they are 1, or
# divisible by 16, and the last time were not.
@triton.jit(
    do_not_specialize=[
        "rows", "entries", "written", "kv_heads", "capacity", "pages", "window", "chunk",
    ]
)  # fmt: skip
def split_kernel(
    query, keys, values, parts, lse, lengths, sizes, ancestors, depths, page_table,
    scale, softcap, window, chunk,
    rows, entries, written, kv_heads, capacity, pages,
    q_row, q_head, q_entry, k_row, k_head, k_slot, v_row, v_head, v_slot,
    GROUP: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, MIXED: tl.constexpr, SIZED: tl.constexpr,
    TREE: tl.constexpr, DEEP: tl.constexpr, PAGED: tl.constexpr, WINDOW: tl.constexpr,
    CHUNK: tl.constexpr, SOFTCAP: tl.constexpr,
):  # fmt: skip
    """A tile of packed queries, entry by entry, over one split of the slots that it may see.

    `entry` numbers the queries, which are the entries of a block behind the `written` ones.
    """
    # One long function: its parts share some twenty scalars and tiles, and a helper, which Triton
    # inlines anyway, would be handed each of them.
    row, head = tl.program_id(1) // kv_heads, tl.program_id(1) % kv_heads
    split, splits = tl.program_id(2), tl.num_programs(2)
    start = tl.program_id(0) * ROWS
    packed = start + tl.arange(0, ROWS)
    entry = packed // GROUP
    live = entry < entries
    length = tl.load(lengths + row).to(tl.int32)
    real = written + entries
    if SIZED:
        real = tl.load(sizes + row).to(tl.int32)
    # The slots that any entry of the tile may see: [low, end).
    last = real
    if not TREE:
        last = tl.minimum(real, (start + ROWS - 1) // GROUP + 1)
    end = tl.minimum(length + last, capacity)
    depth = written + entry
    if DEEP:
        depths += row * (written + entries)  # of the whole block
        depth = tl.load(depths + written + entry, mask=live, other=0).to(tl.int32)
    place = length + depth  # [ROWS]: positions
    low, every = 0, 0  # the first slot that any entry of the tile sees, and that all of them see
    if WINDOW or CHUNK:
        nearest = tl.min(tl.where(live, place, 2147483647), 0)
        farthest = tl.max(tl.where(live, place, 0), 0)
        if WINDOW:
            low = tl.maximum(nearest - window + 1, 0)
            every = tl.maximum(farthest - window + 1, 0)
        if CHUNK:
            low = tl.maximum(nearest // chunk * chunk, low)
            every = tl.maximum(farthest // chunk * chunk, every)
    first_step = low // KEYS
    steps = tl.maximum(tl.cdiv(end, KEYS) - first_step, 0)
    share = tl.cdiv(steps, splits)
    begin = tl.minimum(first_step + split * share, first_step + steps)
    stop = tl.minimum(begin + share, first_step + steps)
    # Steps [clear, mixed) hold slots that every entry sees.
    clear = tl.minimum(tl.maximum(tl.cdiv(every, KEYS), begin), stop)
    mixed = tl.minimum(tl.maximum(length // KEYS, clear), stop)

    dims = tl.arange(0, PADDED)
    in_dims = dims < DIM
    q_head_of = head * GROUP + packed % GROUP
    q_at = row.to(tl.int64) * q_row + q_head_of.to(tl.int64) * q_head + entry.to(tl.int64) * q_entry
    q = tl.load(
        query + q_at[:, None] + dims[None, :], mask=live[:, None] & in_dims[None, :], other=0.0
    )
    k_of = keys + head.to(tl.int64) * k_head
    v_of = values + head.to(tl.int64) * v_head
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.full((ROWS,), 0.0, tl.float32)
    # Values in halves: the compiler lays warps along queries only where there are as many of them
    # as columns, and otherwise keeps the tile's queries in every warp's registers.
    acc = tl.full((ROWS, WIDTH), 0.0, tl.float32)
    acc_2 = tl.full((ROWS, WIDTH), 0.0, tl.float32)
    columns = tl.arange(0, WIDTH)

    slot = tl.arange(0, KEYS)
    for step in range(clear, mixed):
        k_from = k_of + store_row(page_table, row, step * KEYS, pages, k_row, k_slot, PAGED)
        v_from = v_of + store_row(page_table, row, step * KEYS, pages, v_row, v_slot, PAGED)
        k_at = k_from + (slot[None, :] * k_slot + dims[:, None])
        v_at = v_from + (slot[:, None] * v_slot + columns[None, :])
        if PADDED == DIM:
            k = tl.load(k_at)
        else:
            k = tl.load(k_at, mask=in_dims[:, None], other=0.0)
        weights, shrink, top, total = softmax_step(
            q, k, scale, softcap, live, top, total, False, SOFTCAP
        )
        if WIDTH <= DIM:
            v = tl.load(v_at)
        else:
            v = tl.load(v_at, mask=(columns < DIM)[None, :], other=0.0)
        acc = add_values(weights, v, shrink, acc)
        if WIDTH < PADDED:
            if PADDED == DIM:
                v = tl.load(v_at + WIDTH)
            else:
                v = tl.load(v_at + WIDTH, mask=(columns < DIM - WIDTH)[None, :], other=0.0)
            acc_2 = add_values(weights, v, shrink, acc_2)

    # The others, before and behind, by MIXED slots: one word of ancestors an entry.
    column = tl.arange(0, MIXED)
    before = (clear - begin) * (KEYS // MIXED)
    tail = (stop - mixed) * (KEYS // MIXED)
    for number in tl.range(0, before + tail, num_stages=1):
        start_slot = tl.where(
            number < before, begin * KEYS + number * MIXED, mixed * KEYS + (number - before) * MIXED
        )
        slots = start_slot + column
        offset = slots - length  # entry of the block that a slot holds
        inside = (offset >= 0) & (offset < real) & (slots < capacity)
        if TREE:
            first = start_slot - length + packed * 0  # [ROWS], one value
            word = first >> 5  # and the next one; both may be out of range
            words_at = ancestors + (row * entries + entry) * WORDS + word
            right = tl.load(words_at, mask=live & (word >= 0) & (word < WORDS), other=0)
            left = tl.load(words_at + 1, mask=live & (word >= -1) & (word < WORDS - 1), other=0)
            right = right.to(tl.uint32, bitcast=True).to(tl.int64)
            both = (left.to(tl.int64) << 32) | right
            bits = (both >> (first & 31).to(tl.int64)).to(tl.int32)  # [ROWS]
            seen = inside[None, :] & (((bits[:, None] >> column[None, :]) & 1) != 0)
        else:
            seen = inside[None, :] & (offset[None, :] <= entry[:, None])
        seen = (seen | (offset < 0)[None, :]) & live[:, None]
        if WINDOW or CHUNK:
            slot_place = slots
            if DEEP:
                depth_of = tl.load(depths + offset, mask=inside, other=0)
                slot_place = tl.where(inside, length + depth_of.to(tl.int32), slots)
            if WINDOW:
                seen = seen & (slot_place[None, :] > place[:, None] - window)
            if CHUNK:
                seen = seen & (slot_place[None, :] // chunk == place[:, None] // chunk)
        # What no entry was written to is not read: it may be NaN, and 0 x NaN is NaN.
        there = (offset < real) & (slots < capacity)  # [MIXED]
        k_from = k_of + store_row(page_table, row, start_slot, pages, k_row, k_slot, PAGED)
        v_from = v_of + store_row(page_table, row, start_slot, pages, v_row, v_slot, PAGED)
        k_at = k_from + (column[None, :] * k_slot + dims[:, None])
        v_at = v_from + (column[:, None] * v_slot + columns[None, :])
        k = tl.load(k_at, mask=there[None, :] & in_dims[:, None], other=0.0)
        weights, shrink, top, total = softmax_step(
            q, k, scale, softcap, seen, top, total, True, SOFTCAP
        )
        v = tl.load(v_at, mask=there[:, None] & (columns < DIM)[None, :], other=0.0)
        acc = add_values(weights, v, shrink, acc)
        if WIDTH < PADDED:
            second = there[:, None] & (columns < DIM - WIDTH)[None, :]
            v = tl.load(v_at + WIDTH, mask=second, other=0.0)
            acc_2 = add_values(weights, v, shrink, acc_2)

    queries = entries * GROUP
    place_of = tl.program_id(1) * queries + packed  # of [rows, kv_heads, entries, GROUP]
    whole = rows * kv_heads * queries
    at = split.to(tl.int64) * whole + place_of
    some = total > 0
    total = tl.where(some, total, 1.0)
    factor = 1 / total[:, None]
    tl.store(lse + at, tl.where(some, top + tl.log2(total), float("-inf")), mask=live)
    # The merge does not look at a split that saw nothing.
    keep = (live & some)[:, None]
    to = parts + at[:, None] * DIM + columns[None, :]
    tl.store(to, acc * factor, mask=keep & (columns < DIM)[None, :])
    if WIDTH < PADDED:
        tl.store(to + WIDTH, acc_2 * factor, mask=keep & (columns < DIM - WIDTH)[None, :])


@triton.jit(do_not_specialize=["whole", "entries", "kv_heads"])
def merge_kernel(
    parts, lse, sinks, output, whole, entries, kv_heads,
    GROUP: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr, SPLITS: tl.constexpr,
    SINKS: tl.constexpr,
):  # fmt: skip
    """One query's splits, weighted by their log-sum-exps, and the sink of its head."""
    at = tl.program_id(0)  # of [rows, kv_heads, entries, GROUP]
    member, entry = at % GROUP, at // GROUP % entries
    head, row = at // GROUP // entries % kv_heads, at // GROUP // entries // kv_heads
    each = tl.load(lse + tl.arange(0, SPLITS).to(tl.int64) * whole + at)
    top = tl.max(each, 0)
    sink = float("-inf")
    if SINKS:
        sink = tl.load(sinks + head * GROUP + member).to(tl.float32) * LOG2E
        top = tl.maximum(top, sink)
    top = tl.where(top == float("-inf"), 0.0, top)
    total = tl.sum(tl.exp2(each - top), 0)
    if SINKS:
        total += tl.exp2(sink - top)
    dims = tl.arange(0, PADDED)
    # All parts at once: one after the other, each load would wait for the one before it.
    from_split = tl.arange(0, SPLITS).to(tl.int64)[:, None] * whole + at
    some = (each > float("-inf"))[:, None]  # a split that saw nothing has stored nothing
    part = tl.load(
        parts + from_split * DIM + dims[None, :], mask=some & (dims < DIM)[None, :], other=0.0
    )  # [SPLITS, PADDED]
    acc = tl.sum(tl.exp2(each - top)[:, None] * part, 0)
    acc = acc / tl.where(total > 0, total, 1.0)
    heads = kv_heads * GROUP
    to = ((row * entries + entry) * heads + head * GROUP + member).to(tl.int64) * DIM
    tl.store(output + to + dims, acc.to(output.dtype.element_ty), mask=dims < DIM)
