"""Block attention on CPUs: one masked call, or the committed prefix without a mask and the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from . import reference
from .block import Block
from .reference import read_pages, seen_slots

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
"""What torch's fused kernel takes."""

FUSED = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default

LONG = 128
"""Entries of a chain from which on heads are not packed: causality then skips half of the block."""

SHORT = 1024
"""Committed slots up to which an even chain and its prefix are one masked call: merging costs more
than a mask that is made once a forward."""

MASKED = 1 << 16
"""Scores of one row and head up to which a tree, or rows of several lengths, are one masked call.
Beyond, the prefix that all rows have is a call without a mask."""

APART = 1 << 19
"""Bytes of keys and values, a row, that a call over rows of several lengths may read beyond their
ends; reading them costs what a call of its own for each row does."""


ALIGNED = 64
"""Bytes that the first slot's address is a multiple of, as torch's own memory has it."""


def zero_slots(like: Tensor, shape: Sequence[int]) -> Tensor:
    """Returns zeros like a tensor; on a CPU those that nobody writes take no time and memory.

    Torch writes the zeros of all rows that a batch may ever have; numpy has the system give pages
    that are zero, once they are touched.
    """
    if like.device.type != "cpu" or type(like) is not Tensor:
        return torch.zeros(tuple(shape), dtype=like.dtype, device=like.device)
    made = np.zeros(math.prod(shape) * like.element_size() + ALIGNED, np.uint8)
    begin = -made.ctypes.data % ALIGNED
    return torch.from_numpy(made[begin : begin + made.size - ALIGNED]).view(like.dtype).view(*shape)


class _Call(NamedTuple):
    """The part of a call that rows share; `group` query heads read one key head."""

    scale: float
    window: int | None
    chunk: int | None
    group: int


class _Plan(NamedTuple):
    """The calls of torch's kernel that one call of block attention is made of.

    Attributes:
        prefix: slots from the first to before the second, which all queries see without a mask.
        ranges: the other slots, in a call of their own.
        mask: of that call, `[rows, kv_heads, group * entries, slots]`; `None`: a causal block.
        free: slots of it that no entry sees, `[rows, 1, slots, 1]`; `None` if each is seen.
        apart: plans of each row alone instead, where rows are of very different lengths.
    """

    prefix: tuple[int, int] | None = None
    ranges: tuple[tuple[int, int], ...] = ()
    mask: Tensor | None = None
    free: Tensor | None = None
    apart: tuple[_Plan, ...] = ()


def attend(
    query: Tensor, keys: Tensor, values: Tensor, block: Block, scale: float, window: int | None,
    chunk: int | None, softcap: float | None, sinks: Tensor | None,
) -> Tensor:  # fmt: skip
    """`block_attention` on CPUs; here a device's lengths may be read.

    The query heads that share keys are packed into one head's queries, so that keys and values are
    read once and never expanded.
    """
    rows, heads, entries, dim = query.shape
    lengths, whole = block.lengths.tolist(), block.written + entries
    if block.page_table is not None:
        pages = -(-(max(lengths) + whole) // keys.shape[2])
        table = block.page_table[:, :pages]  # what no row sees is not copied
        keys, values = (read_pages(store, table) for store in (keys, values))
        block = block._replace(page_table=None)
    if softcap is not None or query.dtype not in DTYPES:
        end = min(max(lengths) + whole, keys.shape[2])
        keys, values = keys[:, :, :end], values[:, :, :end]
        output = reference.attend(query, keys, values, block, scale, window, chunk, softcap, sinks)
        return output.transpose(1, 2).contiguous().transpose(1, 2)
    kv_heads = keys.shape[1]
    call = _Call(scale, window, chunk, heads // kv_heads)
    is_uniform = whole == 1 and lengths.count(lengths[0]) == rows and lengths[0] < keys.shape[2]
    if is_uniform and sinks is None and block.sizes is None:
        return _plain(query, keys, values, lengths[0], call)
    has_places = window is not None or chunk is not None
    plan = _plan(
        tuple(lengths), None if block.sizes is None else tuple(block.sizes.tolist()),
        None if block.ancestors is None else _bytes(block.ancestors),
        _bytes(block.depths) if block.depths is not None and has_places else None, block.written,
        entries, keys.shape[1:], call, query.dtype,
    )  # fmt: skip
    packed = query.reshape(rows, kv_heads, -1, dim)  # [rows, kv_heads, group * entries, dim]
    output, lse = _attend(packed, keys, values, plan, call)
    if call.group == 1 and sinks is None and output.dtype == query.dtype:
        return output  # in memory already [rows, entries, heads, dim]
    if sinks is not None:
        sink = sinks.float().view(1, kv_heads, -1, 1).expand(-1, -1, -1, entries)
        output = output * (lse - sink.flatten(2)).sigmoid()[..., None]
    if entries == 1:
        return output.to(query.dtype).reshape(query.shape)
    split = output.to(query.dtype).view(rows, kv_heads, call.group, entries, dim)
    grouped = split.permute(0, 3, 1, 2, 4).contiguous()  # [rows, entries, kv_heads, group, dim]
    return grouped.view(rows, entries, heads, dim).transpose(1, 2)


def _plain(query: Tensor, keys: Tensor, values: Tensor, length: int, call: _Call) -> Tensor:
    """Returns one entry behind rows of one length: one call, as plain decoding has always had."""
    low, _ = _window(length, length, call)
    if call.group > 1:
        packed = query.reshape(query.shape[0], -1, call.group, query.shape[3])
    else:
        packed = query
    count = length + 1 - low
    output: Tensor = FUSED(
        packed, keys.narrow(2, low, count), values.narrow(2, low, count), scale=call.scale
    )[0]
    return output if call.group == 1 else output.reshape(query.shape)


def _attend(
    packed: Tensor, keys: Tensor, values: Tensor, plan: _Plan, call: _Call
) -> tuple[Tensor, Tensor]:
    """Output `[rows, kv_heads, group * entries, dim]`, and the log-sum-exp of its scores."""
    if plan.apart:
        rows = [slice(row, row + 1) for row in range(len(plan.apart))]
        parts = [
            _attend(packed[row], keys[row], values[row], row_part, call)
            for row, row_part in zip(rows, plan.apart, strict=True)
        ]
        output, lse = (torch.cat(part) for part in zip(*parts, strict=True))
        return output, lse
    if plan.prefix is None:
        return _rest(packed, keys, values, plan, call)
    begin, end = plan.prefix
    output, lse = FUSED(packed, keys[:, :, begin:end], values[:, :, begin:end], scale=call.scale)
    if not plan.ranges:
        return output, lse
    return _merge(output, lse, *_rest(packed, keys, values, plan, call))


def _rest(
    packed: Tensor, keys: Tensor, values: Tensor, plan: _Plan, call: _Call
) -> tuple[Tensor, Tensor]:
    """Returns attention over the slots of `ranges`."""
    keys, values = _slots(keys, plan.ranges), _slots(values, plan.ranges)
    if plan.mask is None:
        return _causal(packed, keys, values, call)
    output, lse = FUSED(packed, keys, values, 0.0, False, attn_mask=plan.mask, scale=call.scale)
    if plan.free is None or math.isfinite(output.sum().item()):
        return output, lse
    # What lies in a slot that no entry sees may be NaN, and 0 x NaN is NaN. It seldom is, and zeros
    # in its place cost more than the attention.
    keys, values = (store.masked_fill(plan.free, 0.0) for store in (keys, values))
    output, lse = FUSED(packed, keys, values, 0.0, False, attn_mask=plan.mask, scale=call.scale)
    return output, lse


@lru_cache(maxsize=4)
def _plan(
    lengths: tuple[int, ...], sizes: tuple[int, ...] | None, ancestors: bytes | None,
    depths: bytes | None, written: int, entries: int, store: tuple[int, int, int], call: _Call,
    dtype: torch.dtype,
) -> _Plan:  # fmt: skip
    """Made once a forward for all layers of a kind.

    Args:
        sizes: real entries of each row.
        ancestors, depths: a block's, as bytes of int32.
        store: key heads, slots and channels of the keys.
    """
    kv_heads, capacity, dim = store
    if _lie_apart(lengths, kv_heads * dim * dtype.itemsize):

        def select(values: Any, row: int) -> Any:
            """Returns a row's share of what all rows have as much of."""
            size = 0 if values is None else len(values) // len(lengths)
            return values and values[row * size : (row + 1) * size]

        arguments = (lengths, sizes, ancestors, depths)
        rows = [[select(values, row) for values in arguments] for row in range(len(lengths))]
        make, rest = _plan.__wrapped__, (written, entries, store, call, dtype)
        return _Plan(apart=tuple(make(*row, *rest) for row in rows))
    whole, queries = written + entries, call.group * entries
    shortest, longest = min(lengths), max(lengths)
    low, common = _window(shortest, longest + whole - 1, call)
    end = min(longest + whole, capacity)
    is_full = sizes is None or min(sizes) >= whole
    is_even = is_full and shortest == longest and end == longest + whole
    if whole == 1 and is_even:
        return _Plan(prefix=(low, end))
    shape = (len(lengths), kv_heads, queries, -1)
    prefix: tuple[int, int] | None = (common, shortest)
    ranges: tuple[tuple[int, int], ...]
    if is_even and ancestors is None and call.window is call.chunk is None:
        if not shortest or (entries <= LONG and longest <= SHORT):
            prefix = None
        begin = 0 if prefix is None else shortest
        mask = None if entries > LONG else _chain_mask(entries, end - begin, call.group, dtype)
        return _Plan(prefix, ((begin, end),), None if mask is None else mask.expand(shape))
    if common >= shortest or (end - low) * queries <= MASKED:
        prefix, ranges = None, ((low, end),)  # one masked call
    elif end == shortest:  # rows are full; torch's kernel can't take no keys
        return _Plan(prefix=prefix)
    else:
        ranges = ((low, common), (shortest, end)) if low < common else ((shortest, end),)

    def read(numbers: bytes | None, *shape: int) -> Tensor | None:
        if numbers is None:
            return None
        return torch.from_numpy(np.frombuffer(numbers, np.int32).copy()).view(len(lengths), *shape)

    block = Block(
        torch.tensor(lengths),
        None if sizes is None else torch.tensor(sizes),
        read(ancestors, entries, -1),
        read(depths, -1),
        written=written,
    )
    slots = torch.cat([torch.arange(first, last) for first, last in ranges])
    seen = seen_slots(block, entries, slots, call.window, call.chunk)  # [rows, entries, slots]
    free = None if is_even else ~seen.any(1)[:, None, :, None]
    seen = seen | ~seen.any(2, keepdim=True)  # entries of padding get a mean of what is there
    mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, -torch.inf)
    return _Plan(prefix, ranges, mask.repeat(1, call.group, 1)[:, None].expand(shape), free)


def _lie_apart(lengths: Sequence[int], slot_bytes: int) -> bool:
    """Returns whether rows are better attended to one by one than all as far as the longest."""
    beyond = len(lengths) * max(lengths) - sum(lengths)
    return 2 * beyond * slot_bytes > APART * len(lengths)


def _window(first: int, last: int, call: _Call) -> tuple[int, int]:
    """Returns the first slot that any position from `first` to `last` sees, and that all see."""
    low = common = 0
    if call.window is not None:
        low, common = max(first - call.window + 1, 0), max(last - call.window + 1, 0)
    if call.chunk is not None:
        low = max(low, first // call.chunk * call.chunk)
        common = max(common, last // call.chunk * call.chunk)
    return low, common


def _slots(store: Tensor, ranges: tuple[tuple[int, int], ...]) -> Tensor:
    """Returns states of one range (a view) or several (a copy), `[rows, kv_heads, slots, dim]`."""
    if len(ranges) == 1:
        first, end = ranges[0]
        return store[:, :, first:end]
    return torch.cat([store[:, :, first:end] for first, end in ranges], 2)


def _bytes(numbers: Tensor) -> bytes:
    return numbers.int().numpy().tobytes()


def _chain_mask(entries: int, slots: int, group: int, dtype: torch.dtype) -> Tensor:
    """Returns what a chain sees of the last `slots` slots, its own included, to add to scores.

    `[1, 1, group * entries, slots]`.
    """
    mask = torch.full((entries, slots), -torch.inf, dtype=dtype).triu_(slots - entries + 1)
    return mask.repeat(group, 1)[None, None]


def _causal(packed: Tensor, keys: Tensor, values: Tensor, call: _Call) -> tuple[Tensor, Tensor]:
    """Returns a long chain over itself; heads stand apart, so that unseen pairs cost nothing."""
    rows, kv_heads, queries, dim = packed.shape
    apart = packed.reshape(rows * kv_heads, call.group, queries // call.group, dim)
    keys, values = (
        store.flatten(0, 1)[:, None].expand(-1, call.group, -1, -1) for store in (keys, values)
    )
    output, lse = FUSED(apart, keys, values, 0.0, True, scale=call.scale)
    return output.reshape(packed.shape), lse.reshape(packed.shape[:3])


def _merge(first: Tensor, lse: Tensor, other: Tensor, of_other: Tensor) -> tuple[Tensor, Tensor]:
    """Returns attention over the union of two disjoint sets of slots, fp32, from that over each."""
    share = (of_other - lse).sigmoid()[..., None]
    return first.float().lerp(other.float(), share), lse.logaddexp(of_other)
