"""What a block of tokens sees: committed lengths and, for trees, ancestors as bits."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...errors import SoonerError

WORDS = 4
"""32-bit words of an entry's ancestors."""

MAX_ENTRIES = 32 * WORDS
"""Entries of the largest tree, its root included; chains may be of any length."""

PAGE = 256
"""Slots of a page; on CPUs as many as the stores of pages have."""


class Block(NamedTuple):
    """A block of entries that follows the committed slots of each row; device tensors only.

    Entry 0 is the root, the last committed token whose keys are not in the cache yet. Entry `i` of
    row `r` lies in slot `lengths[r] + i`. An entry sees the committed slots, its ancestors and
    itself. A named tuple of tensors passes through decoders, `torch.compile` and accelerate.

    A tree that is being drafted is forwarded level by level: the first `written` entries were, and
    their keys are in the cache, uncommitted. The queries are those of the entries behind them.

    Attributes:
        lengths: committed slots, `[rows]`, integers.
        sizes: real entries of each row, root included, `[rows]`; 0 is an inactive row. `None` says
            that all are. Entries behind them are written to the trash slot (`block_slots`), are
            seen by nobody, and what comes out for them means nothing but is finite.
        ancestors: bit `j % 32` of word `j // 32` says that a query sees entry `j`,
            `[rows, queries, WORDS]` int32, or more words where no GPU's kernel is asked. `None` is
            a chain: an entry sees those before it.
        depths: distance of each entry from its root, `[rows, entries]`; the position of an entry is
            `lengths + depths`, which windows count by. `None` is the entry's number.
        page_table: pages of each row, `[rows, pages]` int32, where the stores are
            `[pages, kv_heads, PAGE, dim]`: slot `s` of row `r` is slot `s % PAGE` of page
            `page_table[r, s // PAGE]`. `None` are stores of rows.
        written: entries that were forwarded before; of trees alone, since a chain sees all of them
            and may count them as committed.
    """

    lengths: Tensor
    sizes: Tensor | None = None
    ancestors: Tensor | None = None
    depths: Tensor | None = None
    page_table: Tensor | None = None
    written: int = 0


def pack_ancestors(reach: Tensor, sizes: Tensor | None = None, words: int = WORDS) -> Tensor:
    """Returns ancestors as bits, `[rows, queries, words]` int32.

    Args:
        reach: `[rows, queries, entries]` bool: query `i` sees entry `j`, as in `Tree.ancestors`.
        sizes: entries behind these see nothing and are not seen, `[rows]`; where every entry is a
            query.
        words: of 32 bits.

    Raises:
        SoonerError: more entries than bits.
    """
    entries = reach.shape[-1]
    if entries > 32 * words:
        raise SoonerError(
            f"{entries} entries are more than the {32 * words} that ancestor bits hold; draft "
            "smaller trees"
        )
    if sizes is not None:
        real = torch.arange(entries, device=reach.device) < sizes[:, None]  # [rows, entries]
        reach = reach & real[:, None] & real[..., None]
    bits = pad(reach.long(), (0, 32 * words - entries)).unflatten(-1, (words, 32))
    packed = (bits << torch.arange(32, device=reach.device)).sum(-1)  # up to 2^32 - 1
    return torch.where(packed >= 1 << 31, packed - (1 << 32), packed).int()


def unpack_ancestors(ancestors: Tensor, written: int = 0) -> Tensor:
    """Returns what bits say that queries see, `[rows, queries, written + queries]` bool."""
    place = torch.arange(32, dtype=torch.int32, device=ancestors.device)
    bits = (ancestors[..., None] >> place) & 1  # [rows, queries, words, 32]
    return bits.flatten(-2)[..., : written + ancestors.shape[1]].bool()


def block_slots(block: Block, entries: int, capacity: int) -> Tensor:
    """Returns slots to write the queries' keys and values to, `[rows, entries]`, always in range.

    Entries that are not real, or that do not fit, go to the trash slot: the last one of a row.

    Args:
        entries: queries.
        capacity: slots of a row.
    """
    slots = block.lengths[:, None]
    if entries > 1 or block.written or block.sizes is not None:
        entry = torch.arange(block.written, block.written + entries, device=block.lengths.device)
        slots = slots + entry
    if block.sizes is not None:
        slots = torch.where(entry < block.sizes[:, None], slots, capacity - 1)
    return slots.clamp(max=capacity - 1)
