"""A DFlash drafter with the keys and values of its context, kept between rounds."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ...engine.attention.block import MAX_ENTRIES, WORDS, Block, block_slots, pack_ancestors
from ...engine.attention.context import block_attention
from ..sized_draft import DraftRunner


class BlockRunner(DraftRunner):
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
        super().__init__(model, adapter, model.config.num_hidden_layers, capacity)
        self.model, size, device = model, model.config.block_size, model.device
        words = WORDS if size <= MAX_ENTRIES else math.ceil(size / 32)
        whole = torch.ones(1, size, size, dtype=torch.bool, device=device)
        self._all = pack_ancestors(whole, words=words)  # every entry sees every other
        self._line = torch.arange(size, device=device)

    def remember(self, context: Tensor, sizes: list[int]) -> None:
        """Begin with the context of prompts.

        Args:
            context: `[rows, entries, hidden]`, padded on the right.
            sizes: real entries of each row.
        """
        if context.shape[1]:
            rotation = self.at(torch.arange(context.shape[1], device=context.device)[None])
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
        self.launch("feed", self._feed, context, sizes, is_ragged=True)
        cache.commit_path(sizes[:, None], sizes, is_chain=True)
        cache.note_commit(counts)

    def _feed(self, context: Tensor, sizes: Tensor) -> tuple[Tensor, ...]:
        cache, lengths = self.cache, self.cache.lengths_on(context.device)
        slots = lengths[:, None] + torch.arange(context.shape[1], device=context.device)
        rotation = self.at(slots)
        block = Block(lengths, sizes)  # padding goes to the trash slot
        cache.block_slots = block_slots(block, context.shape[1], cache.capacity + 1)
        for layer in range(self.model.config.num_hidden_layers):
            cache.update(*self.model.keys_values(layer, context, rotation), layer)
        cache.block_slots = None
        return ()

    def draft(self, anchors: Tensor) -> Tensor:
        """Returns logits of each place of a block, `[rows, places, vocab]`, in one forward.

        Args:
            anchors: the last committed token of each row, `[rows]`.
        """
        size = self.model.config.block_size
        (logits,) = self.launch("draft", self._draft, anchors, entries=size)
        return logits

    def _draft(self, anchors: Tensor) -> tuple[Tensor, ...]:
        model, config, cache = self.model, self.model.config, self.cache
        size, lengths = config.block_size, cache.lengths_on(model.device)
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
        rotation = self.at(lengths[:, None] + self._line)
        states = model.denoise(model.embed(tokens, self.adapter), rotation, attend)
        cache.block_slots = None
        first = 0 if config.from_anchor else 1
        return (model.logits(states[:, first:], self.adapter),)
