"""A draft head with its slot cache: real states are kept, estimates are written behind them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...decoding.cache import SlotCache


class HeadRunner:
    """Runs a head over committed entries and over the levels of a tree behind them.

    Entry `i` of a row is the target's state `f_i` with the embedding of the token behind it, and
    lies in slot `i`. Entries of tree levels are written behind the committed ones and are gone
    with the next `feed`: what was accepted comes back with the target's own states.

    Args:
        head: the draft head, or what has its methods.
        adapter: the target's adapter, for its embedding and LM head.
        capacity: slots a row, the largest tree included.
    """

    def __init__(self, head: Any, adapter: Any, capacity: int) -> None:
        self.head = head
        self.adapter = adapter
        self.cache = SlotCache(1, capacity)
        line = torch.arange(capacity, device=head.device)
        self._rotation = head.rotation(line[None])  # of every position, each [1, 1, slots, dim]
        self._slots = line

    @property
    def lengths(self) -> list[int]:
        """Committed entries of each row."""
        return self.cache.lengths

    @property
    def visible(self) -> Tensor:
        """Additive mask of what a token behind the committed ones sees, `[rows, 1, capacity]`."""
        return self._additive(self._slots < self.cache.lengths_on(self.head.device)[:, None])[
            :, None
        ]

    def remember(self, embeds: Tensor, states: Tensor, sizes: list[int]) -> None:
        """Commit the entries of prompts, whose estimates nobody asks for.

        Args:
            embeds: of the token behind each state, `[rows, entries, hidden]`, padded on the right.
            states: as long.
            sizes: real entries of each row.
        """
        if embeds.shape[1]:
            fused = self.head.fuse(embeds.to(self.head.device), states.to(self.head.device))
            rotation = self._at(self._slots[None, : embeds.shape[1]])
            self.cache.update(*self.head.keys_values(fused, rotation), 0)
        self.cache.set_lengths(sizes)

    def feed(self, embeds: Tensor, states: Tensor, sizes: list[int]) -> Tensor:
        """Commit entries behind each row; the estimate of its last one, `[rows, 1, hidden]`.

        Args:
            embeds: of the token behind each state, `[rows, entries, hidden]`, padded on the right.
            states: as long.
            sizes: real entries of each row, at least one.
        """
        head, cache, entries = self.head, self.cache, embeds.shape[1]
        cache.reserve(entries)
        slots = self._behind(cache.lengths, entries)
        fused = head.fuse(embeds.to(head.device), states.to(head.device))
        keys, values = cache.update(*head.keys_values(fused, self._at(slots)), 0)
        cache.set_lengths([have + size for have, size in zip(cache.lengths, sizes, strict=True)])
        last, slots, mask = fused[:, -1:], slots[:, -1:], None
        if not cache.is_uniform or min(sizes) < entries:
            index = torch.tensor(sizes, device=fused.device)[:, None] - 1  # [rows, 1]
            last = fused.gather(1, index[..., None].expand(-1, -1, fused.shape[2]))
            slots = cache.lengths_on(fused.device)[:, None] - 1
            mask = self._additive(self._slots[None, : keys.shape[2]] <= slots)[:, None, None]
        queries = head.queries(last, self._at(slots))
        return head.estimate(last, head.attend(queries, keys, values, mask))

    def level(
        self, tokens: Tensor, states: Tensor, depth: int, visible: Tensor, written: int
    ) -> tuple[Tensor, Tensor]:
        """Forward one level of trees, uncommitted.

        Args:
            tokens: `[rows, entries]`.
            states: the estimates that each of them follows, `[rows, entries, hidden]`.
            depth: how far the level lies behind the committed entries; 0 is right behind them.
            visible: additive mask of what their parents see, `[rows, entries, capacity]`.
            written: entries of upper levels.

        Returns:
            The estimates `[rows, entries, hidden]`, and what each entry itself sees.
        """
        head, cache, committed = self.head, self.cache, self.cache.lengths
        entries, width = tokens.shape[1], cache.longest + written + tokens.shape[1]
        rotation = self._at(self._behind(committed, 1) + depth)
        own = self._behind([length + written for length in committed], entries)
        visible = visible.scatter(2, own.expand(len(committed), -1)[..., None], 0.0)
        fused = head.fuse(self.adapter.embed_tokens(tokens).to(head.device), states)
        keys, values = head.keys_values(fused, rotation)
        cache.reserve(written + entries)
        cache.set_lengths([length + written for length in committed])
        keys, values = cache.update(keys, values, 0)
        cache.set_lengths(committed)
        queries = head.queries(fused, rotation)
        attended = head.attend(queries, keys, values, visible[:, None, :, :width])
        return head.estimate(fused, attended), visible

    def logits(self, states: Tensor) -> Tensor:
        """The target's LM head on estimates: `[rows, entries, vocab]`."""
        return self.adapter.logits(states.to(self.adapter.dtype))

    def keep_rows(self, rows: list[int]) -> None:
        """Drop every row but `rows`."""
        self.cache.keep_rows(rows)

    def _behind(self, lengths: list[int], entries: int) -> Tensor:
        """Slots of `entries` entries behind each row, `[rows or 1, entries]`."""
        if min(lengths) == max(lengths):
            return self._slots[None, lengths[0] : lengths[0] + entries]
        starts = torch.tensor(lengths, device=self._slots.device)[:, None]
        return starts + self._slots[:entries]

    def _at(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """The rotation of positions `slots [rows or 1, entries]`."""
        cos, sin = self._rotation
        return cos[0, 0][slots][:, None], sin[0, 0][slots][:, None]

    def _additive(self, seen: Tensor) -> Tensor:
        mask = torch.zeros(seen.shape, dtype=self.head.dtype, device=seen.device)
        return mask.masked_fill_(~seen, torch.finfo(mask.dtype).min)
