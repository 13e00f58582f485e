"""Block attention on CPUs: one masked call, or the committed prefix without a mask and the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

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
than a mask that is a view."""

MASKED = 1 << 16
"""Scores of one row and head up to which a tree, or rows of several lengths, are one masked call.
Beyond, the prefix that all rows have is a call without a mask."""

APART = 1 << 19
"""Bytes of keys and values, a row, that a call over rows of several lengths may read beyond their
ends; reading them costs what a call of its own for each row does."""


ALIGNED = 64
"""Bytes that the first slot's address is a multiple of, as torch's own memory has it."""


def zero_slots(like: Tensor, shape: Sequence[int]) -> Tensor:
    """Zeros like another tensor; on a CPU those that nobody writes take neither time nor memory.

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


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    block: Block,
    scale: float,
    window: int | None,
    chunk: int | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
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
    call = _Call(scale, window, chunk, heads // keys.shape[1])
    one_length = len(set(lengths)) == 1 and lengths[0] + entries <= keys.shape[2]
    if whole == 1 and sinks is None and block.sizes is None and one_length:
        return _plain(query, keys, values, lengths[0], call)
    if _lie_apart(lengths, keys):
        parts = []
        for row in range(rows):
            one = slice(row, row + 1)
            each = zip(Block._fields, block, strict=True)
            own = {name: part[one] for name, part in each if isinstance(part, Tensor)}
            alone = block._replace(**own)  # type: ignore[arg-type]
            parts.append(_attend(query[one], keys[one], values[one], alone, lengths[one], call))
        output, lse = (torch.cat(part) for part in zip(*parts, strict=True))
    else:
        output, lse = _attend(query, keys, values, block, lengths, call)
    if call.group == 1 and sinks is None and output.dtype == query.dtype:
        return output  # in memory already [rows, entries, heads, dim]
    if sinks is not None:
        sink = sinks.float().view(1, keys.shape[1], -1, 1).expand(-1, -1, -1, entries)
        output = output * (lse - sink.flatten(2)).sigmoid()[..., None]
    split = output.to(query.dtype).unflatten(2, (-1, entries))
    whole = split.permute(0, 3, 1, 2, 4).contiguous()  # [rows, entries, kv_heads, group, dim]
    return whole.view(rows, entries, heads, dim).transpose(1, 2)


def _plain(query: Tensor, keys: Tensor, values: Tensor, length: int, call: _Call) -> Tensor:
    """One entry behind rows of one length: one call, as plain decoding has always had."""
    low, _ = _window(length, length, call)
    if call.group > 1:
        packed = query.reshape(query.shape[0], -1, call.group, query.shape[3])
    else:
        packed = query
    count = length + 1 - low
    output, _ = FUSED(
        packed, keys.narrow(2, low, count), values.narrow(2, low, count), scale=call.scale
    )
    return output if call.group == 1 else output.reshape(query.shape)


def _lie_apart(lengths: Sequence[int], keys: Tensor) -> bool:
    """Whether rows are better attended to one by one than all as far as the longest."""
    _, kv_heads, _, dim = keys.shape
    beyond = len(lengths) * max(lengths) - sum(lengths)
    return 2 * beyond * kv_heads * dim * keys.element_size() > APART * len(lengths)


def _attend(
    query: Tensor, keys: Tensor, values: Tensor, block: Block, lengths: Sequence[int], call: _Call
) -> tuple[Tensor, Tensor]:
    """Rows of nearly one length: output `[rows, kv_heads, group * entries, dim]` and its lse."""
    rows, _, entries, dim = query.shape
    whole = block.written + entries
    packed = query.reshape(rows, keys.shape[1], -1, dim)  # [rows, kv_heads, group * entries, dim]
    shortest, longest = min(lengths), max(lengths)
    low, common = _window(shortest, longest + whole - 1, call)
    end = min(longest + whole, keys.shape[2])
    is_full = block.sizes is None or min(block.sizes.tolist()) >= whole
    is_even = is_full and shortest == longest and end == longest + whole
    if whole == 1 and is_even:
        return _fused(packed, keys[:, :, low:end], values[:, :, low:end], call)
    is_chain = is_even and block.ancestors is None and call.window is call.chunk is None
    if is_chain:
        if not shortest or (entries <= LONG and longest <= SHORT):
            return _chain(packed, keys[:, :, :end], values[:, :, :end], entries, call)
    elif common >= shortest or (end - low) * packed.shape[2] <= MASKED:
        whole_range = ((low, end),)
        return _masked(packed, keys, values, block, lengths, whole_range, is_even, call)
    output, lse = _fused(packed, keys[:, :, common:shortest], values[:, :, common:shortest], call)
    if end == shortest:  # rows are full; torch's kernel can't take no keys
        return output.float(), lse
    if is_chain:
        rest = _chain(packed, keys[:, :, shortest:end], values[:, :, shortest:end], entries, call)
    else:
        ranges = ((low, common), (shortest, end)) if low < common else ((shortest, end),)
        rest = _masked(packed, keys, values, block, lengths, ranges, is_even, call)
    return _merge(output, lse, *rest)


def _window(first: int, last: int, call: _Call) -> tuple[int, int]:
    """The first slot that any position from `first` to `last` sees, and that all of them see."""
    low = common = 0
    if call.window is not None:
        low, common = max(first - call.window + 1, 0), max(last - call.window + 1, 0)
    if call.chunk is not None:
        low = max(low, first // call.chunk * call.chunk)
        common = max(common, last // call.chunk * call.chunk)
    return low, common


def _masked(
    packed: Tensor,
    keys: Tensor,
    values: Tensor,
    block: Block,
    lengths: Sequence[int],
    ranges: tuple[tuple[int, int], ...],
    is_even: bool,
    call: _Call,
) -> tuple[Tensor, Tensor]:
    """Attention over the slots of `ranges`.

    Args:
        is_even: rows have one length and no padding, so that somebody sees each slot.
    """
    entries = packed.shape[2] // call.group
    has_places = call.window is not None or call.chunk is not None
    mask, free = _mask(
        tuple(lengths),
        None if block.sizes is None else tuple(block.sizes.tolist()),
        None if block.ancestors is None else _bytes(block.ancestors),
        _bytes(block.depths) if block.depths is not None and has_places else None,
        block.written,
        entries,
        ranges,
        call,
        packed.dtype,
    )
    keys, values = (_slots(store, ranges) for store in (keys, values))
    output, lse = _fused(packed, keys, values, call, mask)
    if is_even or math.isfinite(output.sum().item()):
        return output, lse
    # What lies in a slot that nobody sees may be NaN, and 0 x NaN is NaN. It seldom is, and zeros
    # in its place cost more than the attention.
    return _fused(packed, keys.masked_fill(free, 0.0), values.masked_fill(free, 0.0), call, mask)


def _slots(store: Tensor, ranges: tuple[tuple[int, int], ...]) -> Tensor:
    """Those of one range, a view, or of several, a copy: `[rows, kv_heads, slots, dim]`."""
    parts = [store[:, :, first:end] for first, end in ranges]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)


def _bytes(numbers: Tensor) -> bytes:
    return numbers.int().numpy().tobytes()


@lru_cache(maxsize=4)
def _mask(
    lengths: tuple[int, ...],
    sizes: tuple[int, ...] | None,
    ancestors: bytes | None,
    depths: bytes | None,
    written: int,
    entries: int,
    ranges: tuple[tuple[int, int], ...],
    call: _Call,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """What is added to the scores of the slots in `ranges`; made once a forward for all layers.

    Args:
        ancestors, depths: a block's, as bytes of int32.

    Returns:
        `[rows, 1, group * entries, slots]`, and the slots that nobody sees, `[rows, 1, slots, 1]`.
    """

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
    slots = torch.cat([torch.arange(first, end) for first, end in ranges])
    seen = seen_slots(block, entries, slots, call.window, call.chunk)  # [rows, entries, slots]
    free = ~seen.any(1)[:, None, :, None]
    seen = seen | ~seen.any(2, keepdim=True)  # entries of padding get a mean of what is there
    mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, -torch.inf)
    return mask.repeat(1, call.group, 1)[:, None], free


def _chain(
    packed: Tensor, keys: Tensor, values: Tensor, entries: int, call: _Call
) -> tuple[Tensor, Tensor]:
    """A chain over itself, the last slots, and over the prefix that is given, of even rows."""
    prefix = keys.shape[2] - entries
    if entries > LONG:
        return _causal(packed, keys, values, call)
    mask = _chain_mask(entries, call.group, packed.dtype)
    return _fused(packed, keys, values, call, mask[..., SHORT - prefix :])


@lru_cache(maxsize=8)
def _chain_mask(entries: int, group: int, dtype: torch.dtype) -> Tensor:
    """What an entry sees of a chain and `SHORT` slots before it, to be added to the scores.

    `[1, 1, group * entries, SHORT + entries]`; a view of it serves shorter prefixes.
    """
    mask = torch.full((entries, SHORT + entries), -torch.inf, dtype=dtype).triu_(SHORT + 1)
    return mask.repeat(group, 1)[None, None]


def _causal(packed: Tensor, keys: Tensor, values: Tensor, call: _Call) -> tuple[Tensor, Tensor]:
    """A long chain over itself; heads stand apart, so that what is not seen is not computed."""
    rows, kv_heads, queries, dim = packed.shape
    apart = packed.reshape(rows * kv_heads, call.group, queries // call.group, dim)
    keys, values = (
        store.flatten(0, 1)[:, None].expand(-1, call.group, -1, -1) for store in (keys, values)
    )
    output, lse = FUSED(apart, keys, values, 0.0, True, scale=call.scale)
    return output.reshape(packed.shape), lse.reshape(packed.shape[:3])


def _fused(
    packed: Tensor, keys: Tensor, values: Tensor, call: _Call, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Torch's fused attention: output and log-sum-exp `[rows, kv_heads, queries]`."""
    if mask is not None:
        mask = mask.expand(*packed.shape[:3], -1)
    output, lse = FUSED(packed, keys, values, 0.0, False, attn_mask=mask, scale=call.scale)
    return output, lse


def _merge(first: Tensor, lse: Tensor, other: Tensor, of_other: Tensor) -> tuple[Tensor, Tensor]:
    """Attention over the union of two disjoint sets of slots, fp32, from that over each."""
    share = (of_other - lse).sigmoid()[..., None]
    return first.float().lerp(other.float(), share), lse.logaddexp(of_other)
