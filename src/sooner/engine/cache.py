"""A key-value cache with slots: ragged rows, rollback by length, one gather to keep a tree path.

A slot is a place in memory. It is *not* a RoPE position: positions are handed to the model
separately, so trees, pruned prompts and M-RoPE families can number their tokens as they need.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from ..errors import UnsupportedError
from .attention.cpu import zero_slots
from .composition import refusal
from .rows import RowTensor

if TYPE_CHECKING:
    from .interface import Prompt


STACKED_LAYERS = 8
"""Layers of one allocation: those that a growing cache holds twice at once."""

MAX_TIMES = 8
"""Slots of a row that a run may be given, over those that it needs."""


def kv_shapes(config: Any) -> list[tuple[int, int, int]]:
    """Returns heads, width of a key and width of a value of each layer, by a decoder's config."""
    shapes = []
    for layer in config.per_layer_config:  # Gemma 4's are of two shapes
        if rank := getattr(layer, "kv_lora_rank", None):  # latents, of which all heads are made
            shapes.append((1, rank, layer.qk_rope_head_dim))
            continue
        heads = getattr(layer, "num_key_value_heads", None) or layer.num_attention_heads
        width = getattr(layer, "head_dim", None) or layer.hidden_size // layer.num_attention_heads
        shapes.append((heads, width, getattr(layer, "v_head_dim", None) or width))
    return shapes


class SlotLayer(CacheLayerMixin):
    """Holds keys and values of one layer, `[rows, kv_heads, slots, head_dim]`, allocated once.

    What reads or rearranges slots of all layers asks the cache for it. The first `update` writes
    the prompt (or its first chunk) and hands the states straight back, so that prefill runs on the
    model's fast causal path. Later updates write each row's block behind its own length.

    Attributes:
        dropped: prompt tokens that this layer holds no slots for, because a sparse prefill took
            them out before it. The owner's lengths count them still; slots here start that much
            lower.
        whole: keys and values as allocated, with the rows that are not in use,
            `[max_rows, kv_heads, slots, head_dim]`; `stores` are views of them.
    """

    is_sliding = False

    def __init__(self, owner: SlotCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._owner = weakref.ref(owner)  # or keys and values would wait for the collector
        self.dropped = 0
        self.whole: tuple[Tensor, ...] = ()

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuses keys and values of another length, which a compressing hook would put here."""
        if name in ("keys", "values") and value is not None and self.is_initialized:
            store: Any = (*self.whole, self.keys)[0]
            if (slots := value.shape[2]) != (whole := store.shape[2]):
                raise refusal("compressed", slots=slots, whole=whole)
        super().__setattr__(name, value)

    @property
    def owner(self) -> Any:
        """Returns the cache that the layer is part of, a `SlotCache`."""
        owner = self._owner()
        assert owner is not None
        return owner

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.hold(self.owner.allocate(self, key_states, value_states), key_states.shape[0])

    def hold(self, whole: tuple[Tensor, ...], rows: int) -> None:
        """Write to these stores from now on, whose first `rows` rows are in use."""
        self.whole, self.is_initialized = whole, True
        self.use(rows)

    def grow(self, rows: int) -> None:
        """Move the first `rows` rows to new memory, as large as the owner says by now."""
        if not self.is_initialized:
            return
        new = self.owner.allocate(self, *self.whole)
        for store, old in zip(new, self.whole, strict=True):
            store[:rows, :, : old.shape[2]] = old[:rows]
        self.hold(new, rows)

    def use(self, rows: int) -> None:
        """Let the first so many rows be in use."""
        if self.is_initialized:
            self.keys, self.values = (store[:rows] for store in self.whole)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        keys, values = self.stores
        pairs, block = ((keys, key_states), (values, value_states)), key_states.shape[2]
        if self.owner.is_empty:
            for store, states in pairs:
                store[:, :, :block] = states
            return key_states, value_states
        if self.owner.block_slots is not None:
            slots = self.owner.block_slots.to(keys.device)
            for store, states in pairs:
                if torch.compiler.is_compiling():  # Inductor would copy the whole store to scatter
                    rows = torch.arange(len(slots), device=keys.device)[:, None]
                    store[rows, :, slots] = states.transpose(1, 2)
                else:
                    store.scatter_(2, slots[:, None, :, None].expand_as(states), states)
            return keys, values
        for store, states in pairs:
            self._write(store, states)
        seen = self.owner.longest + block - self.dropped
        return keys[:, :, :seen], values[:, :, :seen]

    @property
    def stores(self) -> tuple[Tensor, ...]:
        """Returns keys and values, or nothing before the first write."""
        return tuple(store for store in (self.keys, self.values) if store is not None)

    def _write(self, store: Tensor, states: Tensor) -> None:
        block = states.shape[2]
        if self.owner.is_uniform:
            start = self.owner.longest - self.dropped
            store[:, :, start : start + block] = states
            return
        slots = self.owner.lengths_on(states.device)[:, None] + torch.arange(
            block, device=states.device
        )  # [rows, block]
        rows = torch.arange(states.shape[0], device=states.device)[:, None]
        store[rows, :, slots - self.dropped] = states.transpose(1, 2)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.owner.longest + query_length - self.dropped, 0

    def get_seq_length(self) -> int:
        return int(self.owner.longest)

    def get_max_length(self) -> int:
        return int(self.owner.capacity)

    get_max_cache_shape = get_max_length


class SlotCache(Cache):
    """Holds the keys and values of one model over a batch of ragged rows.

    Slots are allocated once, for `max_rows` rows, and stay where they are while rows come and go;
    only a row or a prompt that needs more room moves them. Behind the last slot of a row lies its
    trash slot, which takes what is padding.

    Args:
        layers: number of attention layers.
        capacity: slots of each row; a write beyond it is refused by `reserve`.
        max_rows: rows that are given memory.

    Attributes:
        lengths: committed slots of each row. What lies behind is free: rollback is a shorter
            length, and the next block overwrites it.
        prompt: what is being prefilled, for those that listen to the layers; `None` before and
            after. While it is, `lengths` count what the earlier chunks wrote, padding included.
        chunk: tokens of a row of `prompt` that a layer takes at once.
        one_allocation: layers of one shape lie in one tensor, `STACKED_LAYERS` in each, so that one
            copy moves the slots of all. Not for layers on several devices, or that drop tokens.
        block_slots: slots that the block under way is written to, `[rows, entries]`; the layers
            then hand out whole stores. `None` where a forward is given a mask.
        prefix: slots of each row that held its prompt's beginning before its prefill.
        page_table: pages of each row, where slots lie in pages; see `Block`.
        pages: those of an engine that the rows hold (`memory.pages.RowPages`); `None` without.
        approximations: what was done to the prompt that the model itself would not have done, in
            words; empty as long as keys and values are the model's own.
        is_offloaded: slots lie in host memory; see `offload`.
    """

    is_offloaded = False

    def __init__(self, layers: int, capacity: int, max_rows: int = 1) -> None:
        self.max_rows = max_rows
        self.slot_layers = [SlotLayer(self) for _ in range(layers)]
        super().__init__(layers=list(self.slot_layers))
        self.capacity = capacity
        self.lengths: list[int] = []
        self.prompt: Prompt | None = None
        self.chunk = 0
        self.approximations: list[str] = []
        self.is_stacked = True
        self.block_slots: Tensor | None = None
        self.prefix = 0
        self.page_table: Tensor | None = None
        self.pages: Any = None
        # By group of layers: [2 x layers, max_rows, kv_heads, slots, head_dim].
        self._stacks: dict[int, Tensor] = {}
        self._block = 0  # entries that were last given room behind the committed ones
        self._lengths: dict[torch.device, Tensor] = {}  # where they are what `lengths` says
        self._row_lengths: dict[torch.device, RowTensor] = {}
        self._borrower: weakref.ref[SlotCache] | None = None

    def allocate(self, layer: SlotLayer, keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        """Returns slots for the states of a layer: a part of the tensor of all layers like it.

        Args:
            keys, values: `[rows, kv_heads, any, head_dim]`.
        """
        rows, slots = max(self.max_rows, keys.shape[0]), self.capacity + 1 - layer.dropped
        shapes = [(rows, source.shape[1], slots, source.shape[3]) for source in (keys, values)]
        if self.is_stacked and not layer.dropped and shapes[0] == shapes[1]:
            group, place = divmod(self.slot_layers.index(layer), STACKED_LAYERS)
            if group not in self._stacks:
                layers = min(STACKED_LAYERS, len(self.slot_layers) - group * STACKED_LAYERS)
                self._stacks[group] = _zeros(keys, 2 * layers, *shapes[0])
            part = self._stacks[group][2 * place :][:2]
            if part.shape[1:] == shapes[0] and (part.dtype, part.device) == (
                keys.dtype, keys.device,
            ):  # fmt: skip
                return part[0], part[1]  # not unbind: its views may not be written in grad mode
        self.separate()
        return tuple(
            _zeros(source, *shape) for source, shape in zip((keys, values), shapes, strict=True)
        )

    @torch.inference_mode(False)  # as in `_zeros`
    def separate(self) -> None:
        """Give each layer a tensor of its own."""
        self.is_stacked = False
        if self._stacks:
            self._stacks = {}
            for layer in self.slot_layers:
                if layer.is_initialized:
                    layer.hold(
                        tuple(tensor.clone() for tensor in layer.whole), len(layer.stores[0])
                    )

    def _slots(self, is_stacked: bool) -> Iterator[tuple[Tensor, int]]:
        """Yields slots, `[stores, max_rows, kv_heads, slots, dim]`, and the tokens they lack."""
        if is_stacked and self._stacks:
            yield from ((stack, 0) for stack in self._stacks.values())
            return
        for layer in self.slot_layers:
            yield from ((store[None], layer.dropped) for store in layer.whole)

    def read_page(self, row: int, page: int, size: int) -> list[Tensor]:
        """Returns views of a row's `size` slots of a page, `[stores, kv_heads, size, head_dim]`."""
        part = slice(page * size, (page + 1) * size)
        return [slots[:, row, :, part] for slots, _ in self._slots(is_stacked=True)]

    @property
    def is_empty(self) -> bool:
        return not self.lengths

    @property
    def is_prefilling(self) -> bool:
        """Whether a prompt is on its way through the layers, in whichever of its chunks."""
        return self.prompt is not None

    @contextmanager
    def prefilling(self, prompt: Prompt, chunk: int) -> Iterator[None]:
        """While `prompt` goes through the layers, each of which takes `chunk` tokens at a time.

        A prefill that fails leaves the cache empty: half a prompt is of no use.
        """
        self.prompt, self.chunk = prompt, chunk
        try:
            yield
        except BaseException:
            self.set_lengths([])
            raise
        finally:
            self.prompt, self.chunk = None, 0

    @property
    def is_uniform(self) -> bool:
        return min(self.lengths) == max(self.lengths)

    @property
    def longest(self) -> int:
        return max(self.lengths, default=0)

    def lengths_on(self, device: torch.device) -> Tensor:
        """Returns `lengths` as a tensor `[rows]` on `device`, copied at most once a round.

        It is a view of a tensor that stays where it is; rows not in use have length 0 there.
        """
        if device not in self._lengths:
            rows = len(self.lengths)
            tensor = self._row_lengths.get(device)
            if tensor is None or len(tensor.whole) < max(rows, self.max_rows):
                none = torch.zeros(rows, dtype=torch.long, device=device)
                tensor = self._row_lengths[device] = RowTensor(none, self.max_rows)
            tensor.whole.copy_(torch.tensor(self.lengths + [0] * (len(tensor.whole) - rows)))
            self._lengths[device] = tensor.use(rows)
        return self._lengths[device]

    def set_lengths(self, lengths: list[int]) -> None:
        """Commit or roll back: row `r` now holds its first `lengths[r]` slots."""
        self.lengths = list(lengths)
        self._lengths = {}

    def reserve(self, block: int) -> None:
        """Check that a block of `block` tokens fits behind the longest row.

        Raises:
            RuntimeError: the capacity was planned too small, which is a bug of the caller.
        """
        if self.longest + block > self.capacity:
            raise RuntimeError(
                f"cache of {self.capacity} slots can't hold {self.longest} + {block} tokens"
            )
        self._block = block
        if self.pages is not None and self.lengths:
            self.pages.grow([length + block for length in self.lengths])

    def release(self, gone: Mapping[int, Sequence[int]]) -> None:
        """Let go of what rows hold that end, before `select_rows`.

        Args:
            gone: tokens that each of them has generated, by its row.
        """
        if self.pages is not None:
            self.pages.release(gone, self.lengths)

    def close(self) -> None:
        """Let go of what rows hold, whose slots may mean nothing."""
        if self.pages is not None:
            self.pages.select_rows([])

    def commit_path(self, path: Tensor, entries: Tensor, is_chain: bool) -> None:
        """Keep the root and what follows it on a path; `note_commit` updates the host's part.

        Nothing is read. Entries of a chain are in place already, so it costs nothing.

        Args:
            path: accepted block entries of each row, ascending, `[rows, depth]`.
            entries: of the root and the path, how many are kept, `[rows]`.
            is_chain: every entry is in its place already.
        """
        lengths = self.lengths_on(path.device)
        if not is_chain:
            line = torch.arange(1 + path.shape[1], device=path.device)
            inside = line < entries[:, None]  # an entry that is not kept maps to itself
            source = torch.where(inside, torch.nn.functional.pad(path, (1, 0)), line)
            self.move(lengths[:, None] + source, lengths[:, None] + line)
        for tensor in self._lengths.values():
            tensor.add_(entries.to(tensor.device))

    def note_commit(self, entries: list[int]) -> None:
        """Tell the host what the last `commit_path` kept of each row."""
        self.lengths = [have + count for have, count in zip(self.lengths, entries, strict=True)]

    def shift(self, count: int) -> None:
        """Count so many more slots of every row as committed, or fewer; nothing is uploaded."""
        if not count:
            return
        self.lengths = [have + count for have in self.lengths]
        for tensor in self._lengths.values():
            tensor.add_(count)

    def move(self, source: Tensor, target: Tensor) -> None:
        """Copy the slots `source` to the slots `target` of their rows, both `[rows, count]`."""
        self.write_slots(target, self.read_slots(source))

    def read_slots(self, slots: Tensor) -> list[Tensor]:
        """Returns copies of what lies in slots `[rows, count]`, for `write_slots`.

        It is one gather for all layers that lie in one tensor. What lies behind the capacity is
        the trash slot.
        """
        return [part.gather(3, index) for part, index in self._slot_index(slots)]

    def write_slots(self, slots: Tensor, states: list[Tensor]) -> None:
        """Write what `read_slots` gave into slots `[rows, count]`."""
        for (part, index), values in zip(self._slot_index(slots), states, strict=True):
            part.scatter_(3, index, values)

    def _slot_index(self, slots: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields stores, `[stores, rows, kv_heads, slots, dim]`, and where slots lie in them."""
        slots = slots.clamp(max=self.capacity)
        for store, dropped in self._slots(is_stacked=True):
            part = store[:, : slots.shape[0]]
            index = (slots.to(part.device) - dropped)[None, :, None, :, None]
            yield part, index.expand(part.shape[0], -1, part.shape[2], -1, part.shape[4])

    def select_rows(self, rows: list[int]) -> None:
        """Drop every row but `rows`, in that order; only rows that move are copied."""
        if self.pages is not None:
            self.pages.select_rows(rows)
        moved = [(row, source) for row, source in enumerate(rows) if row != source]
        for slots, _ in self._slots(is_stacked=True) if moved else ():
            used = slots[:, :, :, : self.longest + self._block]  # what is not committed, too
            if all(source > row for row, source in moved):
                for row, source in moved:  # what lies there has been moved up before
                    used[:, row] = used[:, source]
            else:
                targets, sources = zip(*moved, strict=True)
                used[:, list(targets)] = used[:, list(sources)]
        self.set_lengths([self.lengths[row] for row in rows])
        self.use(len(rows))

    def use(self, rows: int) -> None:
        """Let the first `rows` rows of the stores be in use."""
        for layer in self.slot_layers:
            layer.use(rows)
        for device in self._lengths:
            self._lengths[device] = self._row_lengths[device].use(rows)

    @property
    def buffers(self) -> list[Tensor]:
        """Stores and lengths, as allocated."""
        apart = [store for layer in self.slot_layers for store in layer.whole]
        slots = [*self._stacks.values()] or apart
        return [*slots, *(tensor.whole for tensor in self._row_lengths.values())]

    @property
    def row_capacity(self) -> int:
        """Rows that there is room for."""
        return min(len(store) for layer in self.slot_layers for store in layer.whole)

    @property
    def borrower(self) -> SlotCache | None:
        """Who was lent free rows and has not joined."""
        return None if self._borrower is None else self._borrower()

    @property
    def takes_blocks(self) -> bool:
        """Whether every layer holds every token, so that one set of lengths is right for all, and
        keys and values have one width, as block attention wants them."""
        if any(layer.dropped for layer in self.slot_layers):
            return False
        return all(
            len({store.shape[3] for store in layer.stores}) < 2 for layer in self.slot_layers
        )

    @property
    def is_reusable(self) -> bool:
        """Whether slots may serve other rows: each layer's are all there, and hold the model's own
        keys and values."""
        is_there = all(layer.is_initialized for layer in self.slot_layers)
        return is_there and self.takes_blocks and not self.approximations

    def check_join(self, other: SlotCache) -> None:
        """Require that the rows of `other` can be put behind these.

        Raises:
            UnsupportedError: a prefill context took a different number of tokens out of them.
        """
        for mine, joining in zip(self.slot_layers, other.slot_layers, strict=True):
            if mine.dropped != joining.dropped:
                raise UnsupportedError(
                    f"a prefill context left {joining.dropped} prompt tokens out of a layer, and "
                    f"{mine.dropped} in the rows that decode already; admit such prompts together"
                )

    def can_take(self, other: SlotCache, rows: int) -> bool:
        """Returns whether `take` may be given slots of another cache: enough, for so many rows."""
        # Attention takes longer over a store of many times as many slots, whatever is in use.
        is_long = self.capacity <= other.capacity <= MAX_TIMES * self.capacity
        return is_long and other.row_capacity >= max(rows, self.max_rows) and other.borrower is None

    def take(self, other: SlotCache, rows: int) -> None:
        """Before a prefill: lie where another cache of the model did, whose rows are gone.

        Args:
            rows: of the prompts.
        """
        self.capacity, self.max_rows = other.capacity, other.row_capacity
        self._stacks, self.is_stacked = dict(other._stacks), other.is_stacked
        for mine, other_layer in zip(self.slot_layers, other.slot_layers, strict=True):
            mine.hold(other_layer.whole, rows)
        self._row_lengths, self._lengths = other._row_lengths, {}

    def borrow(self, other: SlotCache, rows: int) -> None:
        """Prefill `rows` rows into free ones of `other`, behind those that decode there, if any.

        Then `other.merge` copies nothing, unless its rows have moved meanwhile.
        """
        start = len(other.lengths)
        fits = start + rows <= other.row_capacity and self.capacity <= other.capacity
        if not fits or other.borrower or any(layer.dropped for layer in other.slot_layers):
            return
        other._borrower = weakref.ref(self)
        self.capacity, self.max_rows, part = other.capacity, rows, slice(start, start + rows)
        self.is_stacked = bool(other._stacks)
        self._stacks = {group: stack[:, part] for group, stack in other._stacks.items()}
        for mine, other_layer in zip(self.slot_layers, other.slot_layers, strict=True):
            mine.hold(tuple(store[part] for store in other_layer.whole), rows)

    def merge(self, other: SlotCache) -> None:
        """Put the rows of `other`, whose prompts are prefilled, behind these."""
        have, come = len(self.lengths), len(other.lengths)
        self._make_room(have + come, other)
        is_stacked = bool(self._stacks and other._stacks)
        pairs = zip(self._slots(is_stacked), other._slots(is_stacked), strict=True)
        for (mine, _), (other_layer, dropped) in pairs:
            for row, length in enumerate(other.lengths):
                source = other_layer[:, row, :, : length - dropped]
                target = mine[:, have + row, :, : length - dropped]
                if source.data_ptr() != target.data_ptr():  # it was not prefilled there
                    target.copy_(source)
        self._borrower = None
        if self.pages is not None:
            self.pages.merge(other.pages)
        self.approximations += [
            text for text in other.approximations if text not in self.approximations
        ]
        self.set_lengths(self.lengths + other.lengths)
        self.use(have + come)

    def _make_room(self, rows: int, other: SlotCache) -> None:
        """Move to new memory if there is none for so many rows, as long as those of `other`."""
        fits = all(len(store) >= rows for layer in self.slot_layers for store in layer.whole)
        if fits and self.capacity >= other.capacity and self.borrower in (None, other):
            return
        # Old memory goes as soon as the last layer of its group has moved.
        self.max_rows, self._stacks = max(rows, self.max_rows), {}
        self.capacity = max(self.capacity, other.capacity)
        for layer in self.slot_layers:
            layer.grow(len(self.lengths))

    def nbytes(self) -> int:
        """Returns bytes of the slots of all rows and layers."""
        return sum(store.nbytes for layer in self.slot_layers for store in layer.whole)


@torch.inference_mode(False)
def _zeros(like: Tensor, *shape: int) -> Tensor:
    """Returns memory outside inference mode, whose tensors a compiled step may not write to."""
    return zero_slots(like, shape)
