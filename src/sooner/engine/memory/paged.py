"""A cache whose slots lie in pages, wherever these are: rows share the pages of a prefix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import MemoryRanOutError, UnsupportedError, is_out_of_memory
from ..attention.reference import read_pages
from ..cache import SlotCache, SlotLayer
from ..rows import RowTensor
from .pages import PagePool, RowPages


class PageStores:
    """Keys and values of all pages and layers in one tensor, which stays where it is.

    The last page is the trash page: what lies behind a row's pages is written there.

    Args:
        pool: whose pages these are.
        layers: of the model.

    Attributes:
        stack: `[2 x layers, pages + 1, kv_heads, slots, head_dim]`; `None` before the first write.
    """

    def __init__(self, pool: PagePool, layers: int) -> None:
        self.pool, self.layers = pool, layers
        self.stack: Tensor | None = None

    @property
    def trash(self) -> int:
        """Returns the number of the trash page."""
        return self.pool.size

    @torch.inference_mode(False)
    def of(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        """Returns pages of a layer, `[pages + 1, kv_heads, slots, head_dim]` of keys and of values.

        Args:
            keys, values: states of the layer, `[rows, kv_heads, any, head_dim]`.

        Raises:
            UnsupportedError: layers differ in heads, width, type or device.
            MemoryRanOutError: there is no room for all pages.
        """
        if self.stack is None:
            self.stack = self._allocate(keys)
        for tensor in (keys, values):
            fits = tensor.shape[1::2] == self.stack.shape[2::2]
            if not fits or (tensor.dtype, tensor.device) != (self.stack.dtype, self.stack.device):
                raise UnsupportedError(
                    f"keys and values of layer {layer} are not like those of the layers before, so "
                    "they can't lie in pages with them; use paged=False"
                )
        return self.stack[2 * layer], self.stack[2 * layer + 1]

    def _allocate(self, like: Tensor) -> Tensor:
        shape = (2 * self.layers, self.trash + 1, like.shape[1], self.pool.slots, like.shape[3])
        try:
            return torch.zeros(shape, dtype=like.dtype, device=like.device)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            size = math.prod(shape) * like.element_size() / 2**30
            raise MemoryRanOutError(
                f"the engine's {self.trash} pages take {size:.2f} GiB of keys and values, and "
                f"there is no room on {like.device}; give it fewer pages"
            ) from error

    def copy(self, source: int, target: int) -> None:
        """Copy a page, of all layers."""
        assert self.stack is not None
        self.stack[:, target] = self.stack[:, source]


class PagedLayer(SlotLayer):
    """Holds keys and values of one layer in pages, `[pages, kv_heads, slots, head_dim]`."""

    owner: PagedCache

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        number = self.owner.slot_layers.index(self)
        self.keys, self.values = self.owner.memory.of(number, key_states, value_states)
        self.is_initialized = True

    def use(self, rows: int) -> None:
        """All pages are in use, whatever rows there are."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        owner, block = self.owner, key_states.shape[2]
        pages, offsets = owner.places(block)
        self.keys[pages, :, offsets] = key_states.transpose(1, 2)
        self.values[pages, :, offsets] = value_states.transpose(1, 2)
        if owner.is_empty:
            return key_states, value_states
        if owner.block_slots is not None:
            return self.keys, self.values
        return owner.read(self.keys, block), owner.read(self.values, block)

    @property
    def stores(self) -> tuple[Tensor, ...]:
        """Returns copies of keys and values in the order of the rows, once they are written."""
        whole = (tensor for tensor in (self.keys, self.values) if tensor is not None)
        return tuple(read_pages(tensor, self.owner.table.used) for tensor in whole)


class PagedCache(SlotCache):
    """A `SlotCache` over pages; writes and path moves go through a page table.

    Args:
        memory: the pages, which other caches write to as well.
        capacity: slots of each row; the page table has room for them and the trash slot.
        max_rows: rows of the page table.
        pages: of the rows that are to be prefilled.
        device: of the page table.

    Attributes:
        table: pages of each row, `[max_rows, columns]` int32, the trash page behind them; it stays.
    """

    def __init__(
        self,
        memory: PageStores,
        capacity: int,
        max_rows: int,
        pages: RowPages,
        device: torch.device,
    ) -> None:
        super().__init__(memory.layers, capacity, max_rows)
        self.slot_layers = [PagedLayer(self) for _ in range(memory.layers)]
        self.layers = list(self.slot_layers)
        self.memory, self.pages = memory, pages
        self._version = -1
        self._places: tuple[Tensor, Tensor] | None = None
        columns = memory.pool.pages_for(capacity + 1)
        self.table = self._new_table(len(pages.rows), columns, device)
        self.sync()

    @torch.inference_mode(False)  # so that it may be written to in any mode
    def _new_table(self, rows: int, columns: int, device: torch.device) -> RowTensor:
        none = torch.full((rows, columns), self.memory.trash, dtype=torch.int32, device=device)
        return RowTensor(none, self.max_rows)

    def sync(self) -> None:
        """Tell the device which pages the rows have, if that has changed."""
        assert isinstance(self.pages, RowPages)
        if self._version == self.pages.version:
            return
        rows = self.pages.rows
        room, columns = self.table.whole.shape
        lines = [row.pages + [self.memory.trash] * (columns - len(row.pages)) for row in rows]
        lines += [[self.memory.trash] * columns] * (room - len(rows))
        self.table.whole.copy_(torch.tensor(lines, dtype=torch.int32))
        self.page_table = self.table.use(len(rows))
        self._version = self.pages.version

    def use(self, rows: int) -> None:
        """Let the first `rows` rows be in use; those behind the batch's have the trash page."""
        super().use(rows)
        self.page_table = self.table.use(rows)

    @property
    def block_slots(self) -> Tensor | None:
        return self._block_slots

    @block_slots.setter
    def block_slots(self, slots: Tensor | None) -> None:
        self._block_slots = slots
        self._places = None if slots is None else self._find(slots)

    def _find(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Returns page and offset of slots, both `[rows, count]`."""
        size = self.memory.pool.slots
        column = slots // size
        return self.table.used.gather(
            1, column.clamp(max=self.table.used.shape[1] - 1)
        ), slots % size

    def places(self, block: int) -> tuple[Tensor, Tensor]:
        """Returns page and offset of each entry that is being written, both `[rows, block]`."""
        if self._places is not None:
            return self._places
        device = self.table.used.device
        line = torch.arange(block, device=device).expand(len(self.table.used), -1)
        if not self.is_empty:
            line = line + self.lengths_on(device)[:, None]
        return self._find(line)

    def read(self, store: Tensor, block: int) -> Tensor:
        """Returns a copy of what rows hold and a block, `[rows, kv_heads, longest, head_dim]`.

        For forwards with a mask. What lies behind a row's block is zero.
        """
        whole = read_pages(store, self.table.used)[:, :, : self.longest + block]
        line = torch.arange(whole.shape[2], device=whole.device)
        is_tail = line >= self.lengths_on(whole.device)[:, None] + block
        return whole.masked_fill_(is_tail[:, None, :, None], 0.0)

    @property
    def takes_blocks(self) -> bool:
        return True

    def reserve(self, block: int) -> None:
        super().reserve(block)
        self.sync()

    def read_slots(self, slots: Tensor) -> list[Tensor]:
        stack = self.memory.stack
        assert stack is not None
        pages, offsets = self._find(slots.clamp(max=self.capacity).to(stack.device))
        return [stack[:, pages, :, offsets]]

    def write_slots(self, slots: Tensor, states: list[Tensor]) -> None:
        stack = self.memory.stack
        assert stack is not None
        pages, offsets = self._find(slots.clamp(max=self.capacity).to(stack.device))
        (stack[:, pages, :, offsets],) = states

    def select_rows(self, rows: list[int]) -> None:
        """Drop every row but `rows`, in that order; no slot is copied."""
        assert self.pages is not None
        self.pages.select_rows(rows)
        self.set_lengths([self.lengths[row] for row in rows])
        self.sync()

    def release(self, gone: Mapping[int, Sequence[int]]) -> None:
        super().release(gone)
        self.sync()

    def can_take(self, other: SlotCache, rows: int) -> bool:
        same = isinstance(other, PagedCache) and other.table.whole.shape == self.table.whole.shape
        return same and other.row_capacity >= rows

    def take(self, other: SlotCache, rows: int) -> None:
        """Have the page table where another cache had it, whose rows are gone; whenever it is."""
        assert isinstance(other, PagedCache)
        self.table, self._version = other.table, -1
        self._row_lengths, self._lengths = other._row_lengths, {}
        self.sync()

    def borrow(self, other: SlotCache, rows: int) -> None:
        """Nothing has to be borrowed: the pages are one memory."""

    def merge(self, other: SlotCache) -> None:
        """Put the rows of `other` behind these; no slot is copied."""
        assert self.pages is not None
        self.pages.merge(other.pages)
        self.max_rows = max(self.max_rows, len(self.lengths) + len(other.lengths))
        if len(self.table.whole) < self.max_rows:
            columns, device = self.table.whole.shape[1], self.table.whole.device
            self.table = self._new_table(self.max_rows, columns, device)
            self._version = -1
        for mine, other_layer in zip(self.slot_layers, other.slot_layers, strict=True):
            mine.keys, mine.values = other_layer.keys, other_layer.values
            mine.is_initialized = other_layer.is_initialized
        self.approximations += [
            text for text in other.approximations if text not in self.approximations
        ]
        self.set_lengths(self.lengths + other.lengths)
        self.sync()

    @property
    def buffers(self) -> list[Tensor]:
        """What stays where it is, as allocated."""
        stack = [] if self.memory.stack is None else [self.memory.stack]
        return [*stack, self.table.whole, *(tensor.whole for tensor in self._row_lengths.values())]

    @property
    def row_capacity(self) -> int:
        """Rows that there is room for."""
        return len(self.table.whole)

    def nbytes(self) -> int:
        """Returns bytes of all pages."""
        return 0 if self.memory.stack is None else self.memory.stack.nbytes
