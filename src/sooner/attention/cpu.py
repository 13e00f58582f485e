"""Block attention on CPUs: the committed prefix without a mask, the block with one, merged."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from . import reference
from .block import Block, unpack_ancestors
from .reference import read_pages, seen_slots

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
"""What torch's fused kernel takes."""

FUSED = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default

LONG = 128
"""Entries of a chain from which on heads are not packed: causality then skips half of the block."""

SPREAD = 64
"""Slots between the shortest and the longest row up to which ragged rows share one masked part."""

SHORT = 1024
"""Committed slots up to which a chain and its prefix are one masked call: merging costs more than a
mask that is a view."""

SHORT_TREE = 256
"""The same for trees, whose mask is made for each call."""


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
    spread = max(lengths) - min(lengths)
    if spread > SPREAD:
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
    full = block.sizes is None or min(block.sizes.tolist()) >= whole
    uniform = full and shortest == longest and end == longest + whole
    if whole == 1 and uniform:
        return _fused(packed, keys[:, :, low:end], values[:, :, low:end], call)
    plain = uniform and call.window is None and call.chunk is None
    short = SHORT if block.ancestors is None else SHORT_TREE
    if common >= shortest or (plain and longest <= short and entries <= LONG):
        slots = None if plain else torch.arange(low, end)
        own, of_own = keys[:, :, low:end], values[:, :, low:end]  # all that any entry sees
        return _masked(packed, own, of_own, block, slots, uniform, call)
    output, lse = _fused(packed, keys[:, :, common:shortest], values[:, :, common:shortest], call)
    if end == shortest:  # rows are full; torch's kernel can't take no keys
        return output.float(), lse
    slots = None if plain else torch.arange(shortest, end)
    own, of_own = keys[:, :, shortest:end], values[:, :, shortest:end]
    if slots is not None and low < common:
        slots = torch.cat([torch.arange(low, common), slots])
        own = torch.cat([keys[:, :, low:common], own], 2)
        of_own = torch.cat([values[:, :, low:common], of_own], 2)
    return _merge(output, lse, *_masked(packed, own, of_own, block, slots, uniform, call))


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
    slots: Tensor | None,
    uniform: bool,
    call: _Call,
) -> tuple[Tensor, Tensor]:
    """Attention over `slots`, whose `keys` and `values` are given; what nobody sees may be NaN.

    Args:
        slots: their numbers; `None` says that every entry sees all that lie before the block, in
            rows of one length without padding.
        uniform: rows have one length and no padding.
    """
    entries = packed.shape[2] // call.group
    prefix = keys.shape[2] - block.written - entries
    if slots is None:
        if block.ancestors is None:
            if entries > LONG and not prefix:
                return _causal(packed, keys, values, call)
            mask = _chain_mask(entries, call.group, packed.dtype)
            return _fused(packed, keys, values, call, mask[..., SHORT - prefix :])
        seen = pad(unpack_ancestors(block.ancestors, block.written), (prefix, 0), value=True)
    elif block.sizes is None and block.ancestors is None and call.window is call.chunk is None:
        ragged = tuple(block.lengths.tolist())
        mask, free = _ragged_mask(ragged, entries, keys.shape[2], call.group, packed.dtype)
        return _fused(
            packed, keys.masked_fill(free, 0.0), values.masked_fill(free, 0.0), call, mask
        )
    else:
        seen = seen_slots(block, entries, slots, call.window, call.chunk)
    if not uniform:
        free = ~seen.any(1)[:, None, :, None]  # [rows, 1, slots, 1]
        keys, values = keys.masked_fill(free, 0.0), values.masked_fill(free, 0.0)
        blind = ~seen.any(2, keepdim=True)  # entries of padding: they get a mean of real values
        seen = seen | blind
    mask = torch.zeros(seen.shape, dtype=packed.dtype).masked_fill_(~seen, -torch.inf)
    wide = mask[:, None, None].expand(-1, 1, call.group, -1, -1).flatten(2, 3)
    return _fused(packed, keys, values, call, wide)


@lru_cache(maxsize=8)
def _chain_mask(entries: int, group: int, dtype: torch.dtype) -> Tensor:
    """What an entry sees of a chain and `SHORT` slots before it, to be added to the scores.

    `[1, 1, group * entries, SHORT + entries]`; a view of it serves shorter prefixes.
    """
    mask = torch.full((entries, SHORT + entries), -torch.inf, dtype=dtype).triu_(SHORT + 1)
    return mask.repeat(group, 1)[None, None]


@lru_cache(maxsize=2)
def _ragged_mask(
    lengths: tuple[int, ...], entries: int, count: int, group: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """For chains behind rows of several lengths; made once a forward, for all of its layers.

    Returns:
        what is added to the scores of the `count` slots from the shortest row's end on,
        `[rows, 1, group * entries, count]`, and the slots that nobody sees, `[rows, 1, count, 1]`.
    """
    first = min(lengths)
    slots = torch.arange(first, first + count)
    seen = seen_slots(Block(torch.tensor(lengths)), entries, slots)  # [rows, entries, count]
    mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, -torch.inf)
    return mask.repeat(1, group, 1)[:, None], ~seen.any(1)[:, None, :, None]


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
