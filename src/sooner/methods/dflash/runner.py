"""A DFlash drafter with the keys and values of its context, kept between rounds."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ...attention.block import MOST_ENTRIES, WORDS, Block, block_slots, pack_ancestors
from ...attention.ops import block_attention
from ...decoding.cache import SlotCache


class BlockRunner:
    """Runs a drafter over blocks behind the context of each row.

    Entry `i` of a row's context is made from the target's states of its token `i`, and lies in slot
    `i` of every layer, at position `i`. What a block writes lies behind and is gone with the next
    `feed`: the target's own states of what was accepted take its place.

    Args:
        model: the drafter.
        adapter: the target's adapter, for its embedding and LM head.
        capacity: slots a row, a block included.
    """

    def __init__(self, model: Any, adapter: Any, capacity: int) -> None:
        self.model, self.adapter = model, adapter
        config, device = model.config, model.device
        self.cache = SlotCache(config.num_hidden_layers, capacity)
        line = torch.arange(capacity, device=device)
        self._rotation = model.rotation(line[None])  # of every position, each [1, 1, slots, dim]
        size = config.block_size
        words = WORDS if size <= MOST_ENTRIES else math.ceil(size / 32)
        whole = torch.ones(1, size, size, dtype=torch.bool, device=device)
        self._all = pack_ancestors(whole, words=words)  # every entry sees every other
        self._line = torch.arange(size, device=device)

    @property
    def lengths(self) -> list[int]:
        """Entries of each row's context."""
        return self.cache.lengths

    def remember(self, context: Tensor, sizes: list[int]) -> None:
        """Begin with the context of prompts.

        Args:
            context: `[rows, entries, hidden]`, padded on the right.
            sizes: real entries of each row.
        """
        if context.shape[1]:
            rotation = self._at(torch.arange(context.shape[1], device=context.device)[None])
            for layer in range(self.model.config.num_hidden_layers):
                self.cache.update(*self.model.keys_values(layer, context, rotation), layer)
        self.cache.set_lengths(sizes)

    def feed(self, context: Tensor, sizes: Tensor, counts: list[int]) -> None:
        """Add entries behind each row's context.

        Args:
            context: `[rows, entries, hidden]`, padded on the right.
            sizes: real entries of each row, `[rows]`.
            counts: the same on the host.
        """
        cache, sizes = self.cache, sizes.to(context.device)
        lengths = cache.lengths_on(context.device)
        slots = lengths[:, None] + torch.arange(context.shape[1], device=context.device)
        rotation = self._at(slots.clamp(max=cache.capacity - 1))
        block = Block(lengths, sizes)  # padding goes to the trash slot
        cache.block_slots = block_slots(block, context.shape[1], cache.capacity + 1)
        for layer in range(self.model.config.num_hidden_layers):
            cache.update(*self.model.keys_values(layer, context, rotation), layer)
        cache.block_slots = None
        cache.commit_path(sizes[:, None], sizes, is_chain=True)
        cache.note_commit(counts)

    def draft(self, anchors: Tensor) -> Tensor:
        """Logits of each place of a block, `[rows, places, vocab]`, in one forward.

        Args:
            anchors: the last committed token of each row, `[rows]`.
        """
        model, config, cache = self.model, self.model.config, self.cache
        size, device = config.block_size, model.device
        cache.reserve(size)
        lengths = cache.lengths_on(device)
        tokens = anchors.new_full((len(anchors), size), config.mask_token_id)
        tokens[:, 0] = anchors
        rows = len(anchors)
        depths = self._line.expand(rows, -1)
        chain = Block(lengths)
        whole = Block(lengths, ancestors=self._all.expand(rows, -1, -1), depths=depths)

        def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            stores = cache.update(keys, values, layer)
            block = chain if config.causal[layer] else whole
            return block_attention(queries, *stores, block, window=config.windows[layer])

        cache.block_slots = block_slots(chain, size, cache.capacity + 1)
        rotation = self._at(lengths[:, None] + self._line)
        states = model.denoise(model.embed(tokens, self.adapter), rotation, attend)
        cache.block_slots = None
        first = 0 if config.from_anchor else 1
        return model.logits(states[:, first:], self.adapter)

    def keep_rows(self, rows: list[int]) -> None:
        """Drop every row but `rows`."""
        self.cache.keep_rows(rows)

    def join(self, other: BlockRunner) -> None:
        """Put the rows of `other` behind these."""
        self.cache.join(other.cache)
        if other._rotation[0].shape[2] > self._rotation[0].shape[2]:
            self._rotation = other._rotation

    def _at(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """The rotation of positions `slots [rows or 1, entries]`."""
        cos, sin = self._rotation
        return cos[0, 0][slots][:, None], sin[0, 0][slots][:, None]
