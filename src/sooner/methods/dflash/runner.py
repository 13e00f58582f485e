"""A DFlash drafter with the keys and values of its context, kept between rounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...attention.block import MOST_ENTRIES, WORDS, Block, block_slots, pack_ancestors
from ...attention.ops import block_attention
from ...decoding.cache import SlotCache
from ...fusion.decoder import fused
from ..sized_draft import LaunchesParts


class BlockRunner:
    """Runs a drafter over blocks behind the context of each row.

    Entry `i` of a row's context is made from the target's states of its token `i`, and lies in slot
    `i` of every layer, at position `i`. What a block writes lies behind and is gone with the next
    `feed`: the target's own states of what was accepted take its place.

    Args:
        model: the drafter.
        adapter: the target's adapter, for its embedding and LM head.
        capacity: slots a row, a block included.

    Attributes:
        graphs: launch its parts, whose results are gone with the next of their kind.
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
        self.graphs: LaunchesParts | None = None

    @property
    def device(self) -> torch.device:
        device: torch.device = self.model.device
        return device

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
        cache.lengths_on(context.device)
        self._launch("feed", self._feed, context, sizes)
        cache.commit_path(sizes[:, None], sizes, is_chain=True)
        cache.note_commit(counts)

    def _feed(self, context: Tensor, sizes: Tensor) -> tuple[Tensor, ...]:
        cache, lengths = self.cache, self.cache.lengths_on(context.device)
        slots = lengths[:, None] + torch.arange(context.shape[1], device=context.device)
        rotation = self._at(slots.clamp(max=cache.capacity - 1))
        block = Block(lengths, sizes)  # padding goes to the trash slot
        cache.block_slots = block_slots(block, context.shape[1], cache.capacity + 1)
        for layer in range(self.model.config.num_hidden_layers):
            cache.update(*self.model.keys_values(layer, context, rotation), layer)
        cache.block_slots = None
        return ()

    def draft(self, anchors: Tensor) -> Tensor:
        """Logits of each place of a block, `[rows, places, vocab]`, in one forward.

        Args:
            anchors: the last committed token of each row, `[rows]`.
        """
        self.cache.reserve(self.model.config.block_size)
        self.cache.lengths_on(self.model.device)
        (logits,) = self._launch("draft", self._draft, anchors)
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
        rotation = self._at(lengths[:, None] + self._line)
        states = model.denoise(model.embed(tokens, self.adapter), rotation, attend)
        cache.block_slots = None
        first = 0 if config.from_anchor else 1
        return (model.logits(states[:, first:], self.adapter),)

    def _launch(
        self, key: str, run: Callable[..., tuple[Tensor, ...]], *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        """A part of a draft, as a graph where those are wanted."""

        def fused_run(*given: Tensor) -> tuple[Tensor, ...]:
            with fused(self.model):
                return run(*given)

        if self.graphs is None or not self.cache.slot_layers[0].is_initialized:
            return fused_run(*inputs)
        return self.graphs.run(key, fused_run, inputs, [*self.cache.held, *self._rotation])

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
