"""One model with its slot cache: prefill a batch, then forward ragged blocks of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ..errors import UnsupportedError
from .attention.block import MAX_ENTRIES, Block, block_slots, pack_ancestors, unpack_ancestors
from .attention.context import attending_to_blocks, block_arguments
from .attention.reference import seen_slots
from .cache import SlotCache
from .interface import AdapterLike, Prompt, names_rope
from .rows import RowTensor, in_use
from .tree import Tree

if TYPE_CHECKING:
    from .rope import LengthRope

OnPrefill = Callable[[Prompt, int, Tensor], None]
"""Told `(prompt, first token, states [rows, tokens, hidden])` of each chunk of a prefill."""


NOTHING: Mapping[str, Any] = MappingProxyType({})

GRAPHS = "_sooner_graphs"
"""The attribute of a model, or of an engine's pages, in which graphs wait for the next run."""


@dataclass(frozen=True)
class Forward:
    """What a forward gives: `logits [rows, entries, vocab]`, `hidden [rows, entries, hidden]`."""

    logits: Tensor
    hidden: Tensor


class ModelRunner:
    """Runs a decoder over committed prefixes and not yet committed blocks.

    A block is written behind each row's committed length and stays uncommitted until `commit`
    says which of its entries are kept; the next block overwrites the rest.

    Args:
        adapter: the model family's adapter.
        capacity: slots a row, prompt and the largest block included.

    Attributes:
        graphs: launches a draft's forwards, or leaves them to the runner (`graphs.ForwardGraphs`).
        layer_chunk: prompt tokens that each layer takes at once of a prompt that goes through the
            layers as a whole, as a pruner needs it; `None` is all of them.
        delta: how far each row's next position is ahead of its length, `[rows]`, or `[axes, rows]`.
    """

    def __init__(self, adapter: AdapterLike, capacity: int) -> None:
        self.adapter = adapter
        self.graphs: Any = None
        self.layer_chunk: int | None = None
        self.rope = _length_rope(adapter)
        self.cache: SlotCache = adapter.open_cache(capacity)
        self.cache.is_stacked = not is_split(adapter.model)
        self.delta = RowTensor(torch.empty(0, dtype=torch.long), axis=-1)

    @property
    def lengths(self) -> list[int]:
        """Returns the committed tokens of each row."""
        return self.cache.lengths

    def prefill(
        self, prompt: Prompt, chunk: int | None = None, on_states: OnPrefill | None = None
    ) -> Forward:
        """Run the prompt; logits and states of each row's last prompt token, one entry.

        Args:
            prompt: its padding sits at the end.
            chunk: tokens of a row that go through the decoder at once, or `None` for all of them.
                States inside the decoder are then those of one chunk, and its mask is
                `[chunk, tokens up to its end]`; what is computed stays the same.
            on_states: told every token's states, which are not kept otherwise.
        """
        *_, forward = self.prefill_chunks(prompt, chunk, on_states)
        assert forward is not None
        return forward

    def prefill_chunks(
        self, prompt: Prompt, chunk: int | None = None, on_states: OnPrefill | None = None
    ) -> Iterator[Forward | None]:
        """`prefill` a chunk at a time, so that other rows may decode between two of them.

        Yields `None` behind every chunk but the last, then the result; arguments as of `prefill`.
        """
        self.cache.reserve(prompt.width)
        lengths = 0 if self.rope is None else self.rope.prompt_lengths(prompt)
        size = prompt.width if chunk is None else chunk
        last = torch.empty(0)  # state of each row's last token, [rows, 1, hidden]
        with self.cache.prefilling(prompt, self.layer_chunk or size):
            first = self.cache.prefix  # what lies in the cache already
            for start in range(first, prompt.width, size):
                if start > first:
                    yield None
                end = min(start + size, prompt.width)
                with self.rope_by_token(lengths):
                    hidden = self._run_chunk(prompt, start, end)
                if on_states is not None:
                    on_states(prompt, start, hidden)
                if start == first:
                    last = hidden.new_empty(prompt.rows, 1, hidden.shape[-1])
                rows = [row for row, length in enumerate(prompt.lengths) if start < length <= end]
                if rows:
                    last[rows, 0] = hidden[rows, [prompt.lengths[row] - 1 - start for row in rows]]
        self.resume(prompt.lengths, prompt.next_position)
        if self.cache.pages is not None and not self.cache.approximations:
            self.cache.pages.publish(prompt.lengths)
        yield Forward(self.adapter.logits(last), last)

    def _run_chunk(self, prompt: Prompt, start: int, end: int) -> Tensor:
        """Returns states of the prompt's tokens `start` to `end`, `[rows, end - start, hidden]`."""
        embeds, extras, mask = prompt.embeds[:, start:end], prompt.extras, None
        if extras and end - start < prompt.width:
            extras = self.adapter.cut_extras(prompt, start, end)
        if start:
            # Padding is written too. It sits behind every real token of its row, so that none sees
            # it, and rows of any length share slots and one mask.
            self.cache.set_lengths([start] * prompt.rows)
            if self._takes_block(end - start, None) and not self.is_sparse:
                block = Block(self.cache.lengths_on(embeds.device))
                positions = prompt.positions[..., start:end]
                return self._forward_block(embeds, positions, block, extras)
            mask = self._mask(embeds, None)
        return self.adapter.decode(
            embeds,
            prompt.positions[..., start:end],
            attention_mask=mask,  # at the prompt's start none: the model's own causal path
            cache=self.cache,
            **extras,
        )

    @property
    def is_sparse(self) -> bool:
        """Whether a sparse prefill has put its own attention in place of the model's."""
        name = self.adapter.text_config._attn_implementation
        return hasattr(ALL_ATTENTION_FUNCTIONS.get(name), "original")

    def forward_tree(self, roots: Tensor, tree: Tree) -> Forward:
        """Forward `roots [rows]` and the trees behind them; entries are the root, then nodes."""
        block = roots[:, None]
        if tree.nodes:
            block = torch.cat([block, tree.tokens], 1)  # [rows, 1 + nodes]
        if tree.is_chain:
            return self.forward_chain(block)
        return self._forward(block, tree.depths(), tree.ancestors())

    def forward_padded(self, roots: Tensor, tree: Tree, sizes: Tensor) -> Forward:
        """`forward_tree` at a shape that rows need not fill.

        Args:
            sizes: real entries of each row, its root counted, `[rows]`; 0 is an inactive row. Room
                for them has been reserved; the rest is padding, written to the trash slot.
        """
        tokens = torch.cat([roots[:, None], tree.tokens], 1)
        ancestors = None if tree.is_chain else tree.ancestors()
        return self._forward(tokens, tree.depths(), ancestors, sizes=sizes)

    def forward_sized(
        self, tokens: Tensor, sizes: Tensor, depths: Tensor | None, ancestors: Tensor | None,
        written: int, offset: Tensor,
    ) -> Forward:  # fmt: skip
        """`forward_chain`, or with ancestors `forward_level`, of rows of which some are inactive.

        Args:
            sizes: as of `forward_padded`; of a level with what was written before it.
            written: entries before a level; of a chain `offset` counts them.
            offset: entries that a chain follows, on the device, `[]`.
        """
        if ancestors is not None:
            return self._forward(tokens, depths, ancestors, written, sizes)
        if (entries := tokens.shape[1]) > 1:
            depths = torch.arange(entries, device=tokens.device)
        return self._forward(tokens, depths, None, 0, sizes, offset)

    def forward_chain(self, tokens: Tensor, written: int = 0) -> Forward:
        """Forwards `tokens [rows, entries]`, each continuing the one before it.

        Shorter rows are padded on the right: a padded entry never reaches a real one.

        Args:
            written: entries that they follow, which were forwarded before and are not committed.
        """
        depths = None  # one token has none to add
        if (whole := written + tokens.shape[1]) > 1:
            depths = torch.arange(whole, device=tokens.device)
        return self._forward(tokens, depths, None, written)

    def forward_level(self, tokens: Tensor, depths: Tensor, seen: Tensor) -> Forward:
        """Forward one level of trees whose upper levels are written but not committed.

        Args:
            tokens: `[rows, entries]`.
            depths: of every entry so far, upper levels first, `[written + entries]`; 0 is right
                behind the committed tokens.
            seen: what each entry sees of them, itself included: `[rows or 1, entries, written +
                entries]` bool, or its bits (`pack_ancestors`).
        """
        return self._forward(tokens, depths, seen, depths.shape[0] - tokens.shape[1])

    def _forward(
        self, tokens: Tensor, depths: Tensor | None, ancestors: Tensor | None, written: int = 0,
        sizes: Tensor | None = None, offset: Tensor | None = None,
    ) -> Forward:  # fmt: skip
        if sizes is None and self.graphs is not None:
            made: Forward | None = self.graphs.forward(self, tokens, depths, ancestors, written)
            if made is not None:
                return made
        if sizes is None:
            self.cache.reserve(written + tokens.shape[1])
        lengths = self.cache.lengths_on(tokens.device)
        if offset is not None:
            lengths = lengths + offset
        # [rows, entries], or [axes, rows, entries]
        positions = (self.delta.used + lengths)[..., None]
        if depths is not None:
            positions = positions + depths[..., written:]
        if sizes is not None:  # padding has no position that every model knows
            real = torch.arange(tokens.shape[1], device=sizes.device) < sizes[:, None]
            positions = torch.where(real, positions, 0)
        if self._takes_block(written + tokens.shape[1], ancestors):
            block = Block(lengths + written if written else lengths, sizes)  # a chain sees them all
            if ancestors is not None and depths is not None:
                rows, is_packed = tokens.shape[0], ancestors.dtype != torch.bool
                bits = ancestors if is_packed else pack_ancestors(ancestors, sizes)
                bits, depths = bits.expand(rows, -1, -1), depths.expand(rows, -1)
                block = Block(lengths, sizes, bits, depths, written=written)
            extras = self.adapter.step_extras(tokens)
            embeds = self.adapter.embed_tokens(tokens)
            with self.rope_by_token():
                hidden = self._forward_block(embeds, positions, block, extras)
            return Forward(self.adapter.logits(hidden), hidden)
        mask = None
        if ancestors is not None:
            is_packed = ancestors.dtype != torch.bool
            seen = unpack_ancestors(ancestors, written) if is_packed else ancestors
            mask = self._mask(tokens, seen, depths)
        self.cache.shift(written)
        if ancestors is None:
            mask = self._mask(tokens, None)
        with self.rope_by_token():
            hidden = self.adapter.decode(
                self.adapter.embed_tokens(tokens),
                positions,
                attention_mask=mask,
                cache=self.cache,
                **self.adapter.step_extras(tokens),
            )
        self.cache.shift(-written)
        return Forward(self.adapter.logits(hidden), hidden)

    def rope_by_token(self, prompt_lengths: Tensor | int = 0) -> AbstractContextManager[None]:
        """Returns where RoPE depends on the length, each token of a forward has that of its own.

        Args:
            prompt_lengths: of a prefill, `[rows]`.
        """
        if self.rope is None or torch.compiler.is_compiling():  # see `_forward_block`
            return nullcontext()
        return self.rope.by_token(prompt_lengths)

    def _takes_block(self, entries: int, ancestors: Tensor | None) -> bool:
        """Returns whether a block is described to the attention instead of being given a mask."""
        fits = ancestors is None or entries <= MAX_ENTRIES
        return fits and self.adapter.takes_blocks and self.cache.takes_blocks

    def _forward_block(
        self, embeds: Tensor, positions: Tensor, block: Block, extras: Mapping[str, Any] = NOTHING
    ) -> Tensor:
        """States of a block, `[rows, entries, hidden]`; nothing of it depends on lengths."""
        if self.cache.page_table is not None:
            block = block._replace(page_table=self.cache.page_table)
        self.cache.block_slots = block_slots(block, embeds.shape[1], self.cache.capacity + 1)
        arguments = {"cache": self.cache, **block_arguments(block), **extras}
        try:
            if torch.compiler.is_compiling():  # the compiled step enters the context
                return self.adapter.decode(embeds, positions, **arguments)
            with attending_to_blocks(self.adapter.text_config):
                return self.adapter.decode(embeds, positions, **arguments)
        finally:
            self.cache.block_slots = None

    def _mask(self, tokens: Tensor, ancestors: Tensor | None, depths: Tensor | None = None) -> Any:
        """Additive mask `[rows or 1, 1, entries, slots]`, by kind of layer where they see different
        windows; `None` when nothing is hidden.

        Args:
            tokens: ids or embeddings of the block, `[rows, entries, ...]`.
            ancestors: what entries see of their block; `None` for chains.
            depths: of all entries of the block, which windows count by; `None` for chains.
        """
        rows, entries = tokens.shape[:2]
        windows = self.adapter.windows
        if self.cache.is_uniform and ancestors is None:
            if entries == 1 and not windows:
                return None
            rows = 1
        lengths, whole = self.cache.lengths_on(tokens.device)[:rows], entries
        block = Block(lengths)
        if ancestors is not None and depths is not None:
            whole = ancestors.shape[2]
            bits = pack_ancestors(ancestors, words=-(-whole // 32)).expand(rows, -1, -1)
            block = Block(lengths, None, bits, depths.expand(rows, -1), written=whole - entries)
        slots = torch.arange(self.cache.longest + whole, device=tokens.device)
        masks = {
            kind: self._additive(seen_slots(block, entries, slots, window, chunk))
            for kind, (window, chunk) in (windows or {"": (None, None)}).items()
        }
        return masks.get("", masks)

    def _additive(self, seen: Tensor) -> Tensor:
        # Additive rather than boolean: eager attention adds it, and SDPA need not convert it in
        # every layer.
        dtype = self.adapter.dtype
        mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
        return mask.masked_fill_(~seen, torch.finfo(dtype).min)[:, None]

    def using(self, rows: int) -> AbstractContextManager[None]:
        """Let the first `rows` rows be in use meanwhile, those behind the batch's inactive."""
        return in_use(self, rows, len(self.lengths))

    def use(self, rows: int) -> None:
        """Let the first `rows` rows be in use."""
        self.cache.use(rows)
        self.delta.use(rows)

    @property
    def takes_graphs(self) -> bool:
        """Whether blocks of padded rows may be forwarded: only shapes decide what is computed."""
        return self._takes_block(1, None) and not self.cache.is_empty

    @property
    def buffers(self) -> list[Tensor]:
        """What stays where it is as long as no row needs more room."""
        return [*self.cache.buffers, self.delta.whole]

    @property
    def next_position(self) -> Tensor:
        """Returns the position after the committed tokens, `[rows]`, or `[axes, rows]`."""
        delta = self.delta.used
        return delta + self.cache.lengths_on(delta.device)

    def resume(self, lengths: list[int], next_position: Tensor) -> None:
        """Go on behind `lengths` slots of the cache that were filled without a prefill."""
        self.cache.set_lengths(lengths)
        delta = next_position - self.cache.lengths_on(next_position.device)
        if self.delta.has_room(delta, self.cache.max_rows):
            self.delta.replace(delta)
        else:
            self.delta = RowTensor(delta, self.cache.max_rows, axis=-1)

    def move_to(self, delta: RowTensor) -> None:
        """Keep `delta` where another runner of the model did, whose rows are gone."""
        if not self.delta.used.numel():  # before a prefill
            delta.use(0)
        elif not delta.has_room(self.delta.used):
            return
        elif delta is not self.delta:
            delta.replace(self.delta.used)
        self.delta = delta

    def commit(self, paths: list[list[int]]) -> None:
        """Keep the block entries `paths[row]`; entry 0 is the root. For those with host lists."""
        width = max(len(path) for path in paths)
        padded = [[*path, *[0] * (width - len(path)), len(path)] for path in paths]
        table = torch.tensor(padded, device=self.delta.used.device)  # [rows, width + 1]
        is_chain = all(path == list(range(len(path))) for path in paths)
        self.commit_path(table[:, 1:-1], table[:, -1], is_chain)
        self.note_commit([len(path) for path in paths])

    def commit_path(self, path: Tensor, entries: Tensor, is_chain: bool) -> None:
        """Keep the root and what follows it on a path, on the device.

        Args:
            path: accepted block entries, `[rows, depth]`.
            entries: how many are kept, the root included, `[rows]`.
            is_chain: the entries of every path are in place.
        """
        self.cache.commit_path(path, entries, is_chain)

    def commit_chain(self, entries: Tensor, counts: list[int]) -> None:
        """Keep the first entries of each row's block, known to device and host.

        Args:
            entries: how many, `[rows]`, and `counts`: the same on the host.
        """
        self.cache.commit_path(entries[:, None], entries, is_chain=True)
        self.cache.note_commit(counts)

    def note_commit(self, entries: list[int]) -> None:
        """Tell the host how many entries of each row the last `commit_path` kept."""
        self.cache.note_commit(entries)

    def rewind(self, lengths: list[int]) -> None:
        """Roll every row back (or on, over slots already written) to `lengths` tokens."""
        if self.adapter.chains_only:
            name = type(self.adapter.model).__name__
            raise UnsupportedError(
                f"rows can't be taken back to {lengths} tokens by {name}, whose layers keep a "
                "state; use PromptLookup or Speculative"
            )
        self.cache.set_lengths(lengths)

    def select_rows(self, rows: list[int]) -> None:
        """Drop every row but `rows`."""
        self.cache.select_rows(rows)
        self.delta.select_rows(torch.tensor(rows, dtype=torch.long))

    def merge(self, other: ModelRunner) -> None:
        """Put the rows of `other`, whose prompts are prefilled, behind these."""
        self.cache.merge(other.cache)
        self.delta.merge(other.delta.used)


def is_split(model: Any) -> bool:
    """Returns whether a model's layers lie on several devices."""
    return len(set((getattr(model, "hf_device_map", None) or {}).values())) > 1


def _length_rope(adapter: AdapterLike) -> LengthRope | None:
    """Returns a model's RoPE whose frequencies depend on the length; others need no module."""
    if not names_rope(adapter.text_config, "dynamic", "longrope"):
        return None
    from .rope import LengthRope

    return LengthRope.of(adapter)
