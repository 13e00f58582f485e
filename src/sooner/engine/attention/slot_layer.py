"""Keys and values of one layer in slots, as a decoder's attention writes and reads them."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin

from ...errors import UnsupportedError


class SlotLayer(CacheLayerMixin):
    """Holds keys and values of one layer, `[rows, kv_heads, slots, head_dim]`, allocated once.

    Nobody else indexes the stores: what reads or rearranges slots asks for it here, or the cache
    for all layers. The first `update` writes the prompt (or its first chunk) and hands the states
    straight back, so that prefill runs on the model's fast causal path. Later updates write each
    row's block behind its own length.

    Attributes:
        dropped: prompt tokens that this layer holds no slots for, because a sparse prefill took
            them out before it. The owner's lengths count them still; slots here start that much
            lower.
        whole: keys and values as allocated, with the rows that are not in use,
            `[max_rows, kv_heads, slots, head_dim]`; `stores` are views of them.
    """

    is_compileable = False
    is_croppable = False
    is_sliding = False

    def __init__(self, owner: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._owner = weakref.ref(owner)  # or keys and values would wait for the collector
        self.dropped = 0
        self.whole: tuple[Tensor, ...] = ()

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
        block = key_states.shape[2]
        if self.owner.is_empty:
            keys[:, :, :block] = key_states
            values[:, :, :block] = value_states
            return key_states, value_states
        if self.owner.block_slots is not None:
            slots = self.owner.block_slots.to(keys.device)
            if torch.compiler.is_compiling():  # Inductor would copy the whole store to scatter
                rows = torch.arange(len(slots), device=keys.device)[:, None]
                keys[rows, :, slots] = key_states.transpose(1, 2)
                values[rows, :, slots] = value_states.transpose(1, 2)
                return keys, values
            index = slots[:, None, :, None]
            keys.scatter_(2, index.expand_as(key_states), key_states)
            values.scatter_(2, index.expand_as(value_states), value_states)
            return keys, values
        self._write(keys, key_states)
        self._write(values, value_states)
        seen = self.owner.longest + block - self.dropped
        return keys[:, :, :seen], values[:, :, :seen]

    @property
    def stores(self) -> tuple[Tensor, ...]:
        """Returns keys and values, or nothing before the first write."""
        return tuple(store for store in (self.keys, self.values) if store is not None)

    @property
    def kv_heads(self) -> int:
        return int(self.stores[0].shape[1])

    def first_keys(self, count: int) -> Tensor:
        """Returns a view of the keys of the first `count` slots held, `[rows, kv_heads, count,
        dim]`.
        """
        return self.stores[0][:, :, :count]

    def gather(self, slots: Tensor) -> tuple[Tensor, ...]:
        """Returns copies of keys and values, `[rows, kv_heads, count, dim]`, of the owner's slots.

        Args:
            slots: `[rows, kv_heads, count]`; the heads of a row may choose different ones.

        Raises:
            UnsupportedError: a prefill context left tokens out of this layer, whose slots these
                numbers would miss.
        """
        if self.dropped:
            raise UnsupportedError(
                f"slots are gathered from a whole cache, but a prefill context left out "
                f"{self.dropped} prompt tokens of a layer; leave the context"
            )
        return tuple(
            store.gather(2, slots.to(store.device)[..., None].expand(-1, -1, -1, store.shape[3]))
            for store in self.stores
        )

    def fill(self, keys: Tensor, values: Tensor) -> None:
        """Write `[rows, kv_heads, count, dim]` to the first slots; allocates an empty layer."""
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
        for store, states in zip(self.stores, (keys, values), strict=True):
            store[:, :, : states.shape[2]] = states

    def copy(self, other: SlotLayer, source: Tensor, target: Tensor) -> None:
        """Copy the slots `source` of another cache's layer to the slots `target` of this one.

        Args:
            other: a layer of as many rows and heads.
            source, target: `[rows, count]`, each in its owner's numbers.
        """
        for read, write in zip(other.stores, self.stores, strict=True):
            rows = torch.arange(source.shape[0], device=read.device)[:, None]
            there = source.to(read.device) - other.dropped
            write[rows, :, target.to(write.device) - self.dropped] = read[rows, :, there]

    def shrink(self, whole: int, room: int) -> tuple[Tensor, ...]:
        """Keep `room` of the slots of the `whole` first tokens, and what lies behind them.

        The `room` slots are to be written by `fill`. Returns keys and values of the `whole` tokens
        as they were, `[rows, kv_heads, whole, dim]`.
        """
        prompt = tuple(store[:, :, :whole].clone() for store in self.stores)
        tail = self.owner.longest - self.dropped - whole
        capacity = self.owner.capacity + 1 - self.dropped - whole + room
        small = []
        for store in self.stores:
            new = store.new_zeros(*store.shape[:2], capacity, store.shape[3])
            new[:, :, room : room + tail] = store[:, :, whole : whole + tail]
            small.append(new)
        self.owner.separate()
        self.hold(tuple(small), len(small[0]))
        self.dropped += whole - room
        return prompt

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
