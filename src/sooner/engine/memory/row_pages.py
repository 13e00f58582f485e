"""The pages of each row of a cache: taken as it grows, named and given back as it leaves."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .pages import PagePool, Prefix

if TYPE_CHECKING:
    from ..cache import SlotCache


@dataclass
class RowMemory:
    """What one row holds.

    Attributes:
        pages: in the order of its slots.
        prefix: its text; `None` if nothing of it may be shared.
        has_draft: slots of a draft hold the same tokens.
    """

    pages: list[int]
    prefix: Prefix | None = None
    has_draft: bool = False


class RowPages:
    """Holds the pages of the rows of one cache, in its order; it is a `SlotCache.pages`.

    Args:
        pool: where they are from.
        rows: those that the cache begins with.

    Attributes:
        version: goes up with every change of the pages of a row.
        on_leave: told `(these, row)` of rows that end, while they are in place.
    """

    def __init__(self, pool: PagePool, rows: Iterable[RowMemory]) -> None:
        self.pool, self.rows, self.version = pool, list(rows), 0
        self.on_leave: Callable[[RowPages, int], None] = lambda rows, row: None

    def missing(self, slots: Sequence[int]) -> int:
        """Returns pages that must be taken so that each row has so many slots."""
        return sum(
            max(self.pool.pages_for(count) - len(row.pages), 0)
            for count, row in zip(slots, self.rows, strict=True)
        )

    def grow(self, slots: Sequence[int]) -> None:
        """Let each row have so many slots at least.

        Raises:
            MemoryRanOutError: no page is left; no row has grown then.
        """
        pages = self.pool.take(self.missing(slots))
        self.version += bool(pages)
        for count, row in zip(slots, self.rows, strict=True):
            more = max(self.pool.pages_for(count) - len(row.pages), 0)
            row.pages += [pages.pop() for _ in range(more)]

    def publish(self, slots: Sequence[int]) -> None:
        """Let others find the full pages of the rows' prompts, of so many slots each."""
        for row, count in enumerate(slots):
            self._name(row, (), count)

    def _name(self, row: int, generated: Sequence[int], slots: int) -> None:
        """Name the full pages of the first `slots` slots, whose text ends in `generated`."""
        memory = self.rows[row]
        if memory.prefix is None:
            return
        names = memory.prefix.names(self.pool.slots, generated)
        for page, name in zip(memory.pages[: slots // self.pool.slots], names, strict=False):
            self.pool.name(page, name)

    def forget(self, row: int) -> None:
        """Remove a row's pages from the prefix cache, since they may hold NaN."""
        memory = self.rows[row]
        known = [] if memory.prefix is None else self.pool.find(memory.prefix.keys(self.pool.slots))
        self.pool.forget([*known, *memory.pages])
        memory.prefix = None

    def release(self, gone: Mapping[int, Sequence[int]], slots: Sequence[int]) -> None:
        """Gives back the pages of rows that end; the pages' names stay known.

        Args:
            gone: tokens that each row has generated; the rows are still in place.
            slots: committed ones of each row of the cache.
        """
        for row, tokens in gone.items():
            self._name(row, tokens, slots[row])
            self.on_leave(self, row)
            self._drop(row)

    def _drop(self, row: int) -> None:
        self.pool.drop(self.rows[row].pages)
        self.rows[row].pages = []
        self.version += 1

    def select_rows(self, rows: list[int]) -> None:
        """Drop every row but `rows`, in that order."""
        for row, memory in enumerate(self.rows):
            if memory.pages and row not in rows:
                self._drop(row)
        self.rows = [self.rows[row] for row in rows]
        self.version += 1

    def merge(self, other: RowPages) -> None:
        """Put the rows of `other` behind these; it has none any more."""
        self.rows += other.rows
        other.rows = []
        self.version += 1


Content = list[Tensor]
"""Slots of a page, of each of a cache's allocations: `[stores, kv_heads, slots, head_dim]`."""


class PageCopies:
    """Copies of the cached pages of rows whose slots are contiguous.

    A row's slots are written over when it has left, so what may be found again is copied then; a
    row that finds it takes it over. A page of a row that decodes is read where it is.

    Attributes:
        content: of the cached pages.
        rows: whose slots hold the others.
    """

    def __init__(self) -> None:
        self.content: dict[int, Content] = {}
        self.rows: weakref.WeakSet[CopiedRows] = weakref.WeakSet()

    def evict(self, page: int) -> None:
        """Its place is taken."""
        self.content.pop(page, None)

    def keep(self, page: int, content: Content) -> bool:
        """Copies what stands in a page; returns whether there was memory for it."""
        try:
            self.content[page] = [tensor.clone() for tensor in content]
        except Exception:  # the row leaves all the same
            return False
        return True

    def find(self, page: int) -> Content:
        """Returns what stands in a used or cached page."""
        if (tensors := self.content.get(page)) is not None:
            return tensors
        for rows in self.rows:
            for row, memory in enumerate(rows.rows):
                if page in memory.pages:
                    return rows.read(row, memory.pages.index(page))
        raise KeyError(f"page {page} is neither kept nor in a row")


class CopiedRows(RowPages):
    """Counts the memory of contiguous rows in pages: page `i` of a row is its slots."""

    def __init__(
        self, pool: PagePool, rows: Iterable[RowMemory], cached: PageCopies, cache: SlotCache
    ) -> None:
        super().__init__(pool, rows)
        self.cached, self._cache = cached, weakref.ref(cache)
        cached.rows.add(self)

    def read(self, row: int, index: int) -> Content:
        """Returns views of the slots of a row's page."""
        cache = self._cache()
        assert cache is not None, "rows outlived their cache"
        return read_page(cache, row, index, self.pool.slots)

    def _drop(self, row: int) -> None:
        pages, pool = self.rows[row].pages, self.pool
        for index, page in enumerate(pages):
            is_last = pool.holders(page) == 1 and pool.name_of(page) is not None
            if is_last and not self.cached.keep(page, self.read(row, index)):
                pool.forget([page])
        super()._drop(row)


class SpareSlots:
    """Slots of a batch that has ended, for the next one.

    On CPUs memory that is new costs more than what is written to it: the system gives it page by
    page, as it is touched.

    Args:
        reuses: whether slots are taken over; where an allocator keeps memory itself they are not.
    """

    def __init__(self, reuses: bool) -> None:
        self.reuses = reuses
        self._cache: SlotCache | None = None

    def keep(self, cache: SlotCache) -> None:
        """Has the next batch take the slots of a cache whose rows have ended."""
        cache.set_lengths([])
        self._cache = cache if self.reuses and cache.is_reusable else None

    def lend(self, cache: SlotCache, rows: int) -> None:
        """Gives a cache, before the prefill of `rows` rows, these slots if they fit."""
        if self._cache is not None and cache.can_take(self._cache, rows):
            cache.take(self._cache, rows)
            self._cache = None


def read_page(cache: SlotCache, row: int, index: int, slots: int) -> Content:
    """Returns views of a page of a contiguous row."""
    return cache.row_slots(row, index * slots, (index + 1) * slots)


@torch.inference_mode()
def fill_pages(cache: SlotCache, pages: list[Content]) -> None:
    """Copy pages into the slots of a contiguous row that has none yet, as far as it has them."""
    if pages and not cache.slot_layers[0].is_initialized:
        stores = [store[None] for tensor in pages[0] for store in tensor]
        for layer, number in zip(cache.slot_layers, range(0, len(stores), 2), strict=True):
            layer.lazy_initialization(stores[number], stores[number + 1])
    for index, page in enumerate(pages):
        for mine, source in zip(read_page(cache, 0, index, page[0].shape[2]), page, strict=True):
            mine.copy_(source[:, :, : mine.shape[2]])
