"""A draft head with its slot cache."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ...engine.attention.block import MAX_ENTRIES, WORDS, Block, block_slots, pack_ancestors
from ...engine.rows import RowTensor
from ..sized_draft import DraftRunner


class HeadRunner(DraftRunner):
    """Runs a head over committed entries and over the levels of a tree behind them.

    Entry `i` of a row is the target's state `f_i` with the embedding of the token behind it, and
    lies in slot `i`. Entries of tree levels are written behind the committed ones and are gone
    with the next `feed`: what was accepted comes back with the target's own states.

    Args:
        head: the draft head, or what has its methods.
        adapter: the target's adapter, for its embedding and LM head.
        capacity: slots a row, the largest tree included.
        largest: entries of the largest tree's levels.
        legal: token ids that may be drafted, ascending; `None` for all.

    Attributes:
        legal: the same with the target, `[ids]`.
    """

    def __init__(
        self,
        head: Any,
        adapter: Any,
        capacity: int,
        largest: int = MAX_ENTRIES,
        legal: tuple[int, ...] | None = None,
    ) -> None:
        self._words = max(WORDS, math.ceil(largest / 32))
        super().__init__(head, adapter, 1, capacity, (self._words, legal))
        self.head = head
        self._delta: RowTensor | None = None  # of positions behind the prompt, [axes, rows]
        entries = torch.eye(32 * self._words, dtype=torch.bool, device=head.device)
        self._self_masks = pack_ancestors(entries[None], words=self._words)  # [1, entries, words]
        self.legal = None if legal is None else torch.tensor(legal, device=adapter.device)

    @property
    def buffers(self) -> list[Tensor]:
        return [*super().buffers, *([] if self._delta is None else [self._delta.whole])]

    @property
    def visible(self) -> Tensor:
        """What a token behind the committed ones sees of a tree, as bits, `[rows, 1, words]`."""
        rows = len(self.cache.lengths_on(self.device))  # in use, those that are padding included
        return self._self_masks.new_zeros(rows, 1, self._words)

    def count_from(self, next_position: Tensor, lengths: list[int]) -> None:
        """Let entries behind the prompts have the target's positions.

        Args:
            next_position: of the first token behind each prompt, `[rows]` or `[axes, rows]`.
            lengths: tokens of each prompt.
        """
        device = self.head.device
        delta = next_position.to(device) - torch.tensor(lengths, device=device)
        if self._delta is not None and self._delta.has_room(delta, self.cache.max_rows):
            self._delta.replace(delta)
        else:
            self._delta = RowTensor(delta, self.cache.max_rows, axis=-1)

    def remember(
        self, embeds: Tensor, states: Tensor, sizes: list[int], positions: Tensor | None = None
    ) -> None:
        """Commit the entries of prompts, whose estimates are not read.

        Args:
            embeds: of the token behind each state, `[rows, entries, hidden]`, padded on the right.
            states: as long.
            sizes: real entries of each row.
            positions: of the states' tokens, `[rows, entries]` or `[axes, rows, entries]`; by
                default entries are counted.
        """
        if embeds.shape[1]:
            fused = self.head.fuse(embeds.to(self.head.device), states.to(self.head.device))
            if positions is None:
                rotation = self._at(torch.arange(embeds.shape[1], device=self.head.device)[None])
            else:
                rotation = self.head.rotation(positions.to(self.head.device))
            self.cache.update(*self.head.keys_values(fused, rotation), 0)
        self.cache.set_lengths(sizes)

    def feed(self, embeds: Tensor, states: Tensor, sizes: Tensor, counts: list[int]) -> Tensor:
        """Commit entries behind each row; the estimate of its last one, `[rows, 1, hidden]`.

        Args:
            embeds: of the token behind each state, `[rows, entries, hidden]`, padded on the right.
            states: as long.
            sizes: real entries of each row, at least one, `[rows]`.
            counts: the same on the host.
        """
        cache, device = self.cache, self.head.device
        inputs, sizes = [embeds.to(device), states.to(device)], sizes.to(device)
        (estimate,) = self.launch("feed", self._feed, *inputs, sizes, is_ragged=True)
        cache.commit_path(sizes[:, None], sizes, is_chain=True)
        cache.note_commit(counts)
        return estimate

    def _feed(self, embeds: Tensor, states: Tensor, sizes: Tensor) -> tuple[Tensor, ...]:
        """Write entries, and estimate behind the last of each row's `sizes [rows]`."""
        head, lengths = self.head, self.cache.lengths_on(self.head.device)
        slots = lengths[:, None] + torch.arange(embeds.shape[1], device=head.device)
        fused = head.fuse(embeds, states)
        block = Block(lengths, sizes)  # padding goes to the trash slot
        keys, values = self._write(block, *head.keys_values(fused, self._at(slots)))
        index = (sizes[:, None] - 1).clamp(min=0)  # [rows, 1]
        last = fused.gather(1, index[..., None].expand(-1, -1, fused.shape[2]))
        slots = slots.gather(1, index)
        queries = head.queries(last, self._at(slots))
        last_entry = Block(slots[:, 0])  # the last entry, behind all others
        return (head.estimate(last, head.attend_block(queries, keys, values, last_entry)),)

    def level(
        self,
        tokens: Tensor,
        states: Tensor,
        depth: int,
        visible: Tensor,
        written: int,
        is_part: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Forward one level of trees, uncommitted.

        Args:
            tokens: `[rows, entries]`.
            states: the estimates that each of them follows, `[rows, entries, hidden]`.
            depth: how far the level lies behind the committed entries; 0 is right behind them.
            visible: what their parents see of the tree, as bits, `[rows, entries, words]`.
            written: entries of upper levels.
            is_part: it is within a part that is launched.

        Returns:
            The estimates `[rows, entries, hidden]`, and what each entry itself sees.
        """
        head, whole = self.head, written + tokens.shape[1]

        def run(tokens: Tensor, states: Tensor, visible: Tensor) -> tuple[Tensor, ...]:
            lengths = self.cache.lengths_on(head.device)
            visible = visible | self._self_masks[:, written:whole]
            block = Block(lengths, ancestors=visible, written=written)
            rotation = self._at(lengths[:, None] + depth)
            embeds = head.embed(self.adapter.embed_tokens(tokens), tokens)
            fused = head.fuse(embeds.to(head.device), states)
            keys, values = self._write(block, *head.keys_values(fused, rotation))
            queries = head.queries(fused, rotation)
            return head.estimate(fused, head.attend_block(queries, keys, values, block)), visible

        if is_part:
            states, visible = run(tokens, states, visible)
        else:
            key = ("level", depth, written)
            states, visible = self.launch(key, run, tokens, states, visible, entries=whole)
        return states, visible

    def _write(self, block: Block, keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        """Write a block's keys and values; the whole stores."""
        cache = self.cache
        cache.block_slots = block_slots(block, keys.shape[2], cache.capacity + 1)
        stores = cache.update(keys, values, 0)
        cache.block_slots = None
        return stores

    def logits(self, states: Tensor, is_part: bool = False) -> Tensor:
        """Logits behind estimates, `[rows, entries, vocab]` of the target's vocabulary."""

        def run(states: Tensor) -> tuple[Tensor, ...]:
            return (self.head.scores(states, self.adapter),)

        (logits,) = run(states) if is_part else self.launch("logits", run, states)
        return logits

    def use(self, rows: int) -> None:
        super().use(rows)
        if self._delta is not None:
            self._delta.use(rows)

    def select_rows(self, rows: list[int]) -> None:
        super().select_rows(rows)
        if self._delta is not None:
            self._delta.select_rows(torch.tensor(rows, dtype=torch.long))

    def merge(self, other: HeadRunner) -> None:
        super().merge(other)
        if self._delta is not None:
            assert other._delta is not None
            self._delta.merge(other._delta.used)

    def _at(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """The rotation of what lies in `slots [rows or 1, entries]`."""
        if self._delta is None:
            return self.at(slots)
        rotation: tuple[Tensor, Tensor] = self.head.rotation(self._delta.used[..., None] + slots)
        return rotation
