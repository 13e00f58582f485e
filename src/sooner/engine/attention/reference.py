"""Block attention by masks, on any device: what the others are held to."""

from __future__ import annotations

import torch
from torch import Tensor

from .block import Block, unpack_ancestors


def seen_slots(
    block: Block, entries: int, slots: Tensor, window: int | None = None, chunk: int | None = None
) -> Tensor:
    """Returns which slots the queries of a block see, `[rows, entries, slots]` bool.

    Args:
        entries: queries.
        slots: slot numbers, `[slots]`.
        window: an entry sees positions greater than its own less `window`.
        chunk: an entry sees positions of its own chunk of `chunk` positions.
    """
    lengths, whole = block.lengths.long()[:, None], block.written + entries  # [rows, 1]
    entry = torch.arange(whole, device=slots.device)
    offset = slots - lengths  # [rows, slots]: block entry that a slot holds
    real = whole if block.sizes is None else block.sizes[:, None]
    inside = (offset >= 0) & (offset < real)
    index = offset.clamp(0, whole - 1)
    if block.ancestors is None:
        within = offset[:, None] <= entry[:, None]
    else:
        reach = unpack_ancestors(block.ancestors, block.written)
        within = reach.gather(2, index[:, None].expand(-1, entries, -1))
    seen = (offset < 0)[:, None] | (inside[:, None] & within)
    if window is None and chunk is None:
        return seen
    depths = entry.expand(len(lengths), -1) if block.depths is None else block.depths.long()
    places = lengths + depths  # [rows, whole]
    of_slots = torch.where(offset < 0, slots, places.gather(1, index))  # [rows, slots]
    of_slots, places = of_slots[:, None], places[:, block.written :, None]
    if window is not None:
        seen = seen & (of_slots > places - window)
    if chunk is not None:
        seen = seen & (of_slots // chunk == places // chunk)
    return seen


def read_pages(store: Tensor, page_table: Tensor) -> Tensor:
    """Returns a copy of pages in the order of the rows, `[rows, kv_heads, capacity, dim]`."""
    whole = store[page_table.long()]  # [rows, pages, kv_heads, PAGE, dim]
    return whole.transpose(1, 2).flatten(2, 3)


def attend(
    query: Tensor, keys: Tensor, values: Tensor, block: Block, scale: float,
    window: int | None = None, chunk: int | None = None, softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Block attention with a mask and a softmax in fp32, or fp64 for fp64 states.

    Scores of unseen slots are left out, and their values as well: what lies in a free slot may be
    NaN, and 0 x NaN is NaN. The arguments are those of `block_attention`.
    """
    if block.page_table is not None:
        keys, values = (read_pages(store, block.page_table) for store in (keys, values))
    rows, heads, entries, _ = query.shape
    kv_heads, capacity = keys.shape[1], keys.shape[2]
    wide = torch.promote_types(query.dtype, torch.float32)
    seen = seen_slots(
        block, entries, torch.arange(capacity, device=query.device), window, chunk
    )  # [rows, entries, slots]
    packed = query.reshape(rows, kv_heads, -1, query.shape[-1])  # [rows, kv_heads, queries, dim]
    scores = (packed.to(wide) @ keys.to(wide).transpose(2, 3) * scale).unflatten(2, (-1, entries))
    if softcap is not None:
        scores = (scores / softcap).tanh() * softcap
    scores = scores.masked_fill(~seen[:, None, None], -torch.inf)
    lse = scores.logsumexp(-1, keepdim=True)  # [rows, kv_heads, group, entries, 1]
    if sinks is not None:
        lse = lse.logaddexp(sinks.to(wide).view(1, kv_heads, -1, 1, 1))
    weights = (scores - lse).exp().masked_fill(~seen[:, None, None], 0.0)
    used = values.to(wide).masked_fill(~seen.any(1)[:, None, :, None], 0.0)
    output: Tensor = weights.flatten(2, 3) @ used  # [rows, kv_heads, queries, dim]
    return output.view(rows, heads, entries, -1).to(query.dtype)
