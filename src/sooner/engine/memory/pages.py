"""Pages of slots: who holds them, which prefix stands in them, which are taken next.

The pages of a row are taken as it grows, and named and given back as it leaves.
"""

from __future__ import annotations

import weakref
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ...errors import MemoryRanOutError
from ..attention.block import PAGE

if TYPE_CHECKING:
    from ..cache import SlotCache


class PageName(NamedTuple):
    """What a full page holds.

    Attributes:
        key: hash of its token ids and media, and of the key of the page before it.
        stamp: hash of its tokens' RoPE positions.
    """

    key: bytes
    stamp: bytes


class PagePool:
    """Pages by number, with counts of who holds them and an index of the prefixes in them.

    A page is *free*, *used* (a row holds it) or *cached*: no row holds it, but it has a name and
    is handed out by `find` until its place is needed. The least recently used goes first, and of a
    prefix its end before its beginning.

    Args:
        size: number of pages.
        slots: of a page.
        on_evict: told the number of a page that has no name any more.

    Attributes:
        queries, hits: tokens of the prompts that were looked up, and those of them that were taken
            from a page; counted by the caller.
    """

    def __init__(
        self, size: int, slots: int = PAGE, on_evict: Callable[[int], None] = lambda page: None
    ) -> None:
        self.size, self.slots, self.on_evict = size, slots, on_evict
        self.queries = self.hits = 0
        self._free = list(reversed(range(size)))
        self._holders = [0] * size
        self._names: dict[int, PageName] = {}
        self._pages: dict[bytes, int] = {}  # by the key of their name
        self._cached: OrderedDict[int, None] = OrderedDict()  # the next to go first

    @property
    def available(self) -> int:
        """Pages that `take` can give: free and cached ones."""
        return len(self._free) + len(self._cached)

    @property
    def used(self) -> int:
        """Pages that someone holds."""
        return self.size - self.available

    @property
    def cached(self) -> int:
        """Pages that no row holds and that keep a prefix."""
        return len(self._cached)

    def pages_for(self, slots: int) -> int:
        """Returns pages that so many slots take."""
        return -(-slots // self.slots)

    def take(self, count: int) -> list[int]:
        """Returns pages without a name that no row holds.

        Raises:
            MemoryRanOutError: fewer are free or cached; none is taken then.
        """
        if count > self.available:
            raise MemoryRanOutError(
                f"{count} pages of {self.slots} slots are wanted, {self.available} of {self.size} "
                "are free; give the engine more pages, or fewer rows"
            )
        pages = []
        for _ in range(count):
            if not self._free:
                self._evict()
            page = self._free.pop()
            self._holders[page] = 1
            pages.append(page)
        return pages

    def hold(self, pages: Iterable[int]) -> None:
        """Count one more holder of used or cached pages."""
        for page in pages:
            assert self._holders[page] or page in self._cached, f"page {page} is free"
            self._cached.pop(page, None)
            self._holders[page] += 1

    def drop(self, pages: Sequence[int]) -> None:
        """Count one holder less of a row's pages, in their order in the row."""
        for page in reversed(pages):
            assert self._holders[page] > 0, f"page {page} is dropped, and no row holds it"
            self._holders[page] -= 1
            if self._holders[page]:
                continue
            if page in self._names:
                self._cached[page] = None
            else:
                self._free.append(page)

    def name(self, page: int, name: PageName) -> None:
        """Let `find` return a used page, which is not written to any more.

        Nothing happens where another page has that key: its prefix is there already.
        """
        assert self._holders[page], f"page {page} is named, and no row holds it"
        if name.key not in self._pages and page not in self._names:
            self._names[page], self._pages[name.key] = name, page

    def forget(self, pages: Iterable[int]) -> None:
        """Remove pages from the prefix cache, because of what is in them."""
        for page in pages:
            if (name := self._names.pop(page, None)) is None:
                continue
            del self._pages[name.key]
            self.on_evict(page)
            if page in self._cached:
                del self._cached[page]
                self._free.append(page)

    def find(self, keys: Sequence[bytes]) -> list[int]:
        """Returns pages of the longest known prefix of a text whose full pages have these keys."""
        pages = []
        for key in keys:
            if (page := self._pages.get(key)) is None:
                break
            pages.append(page)
        return pages

    def name_of(self, page: int) -> PageName | None:
        """Returns what a page holds, if it may be shared."""
        return self._names.get(page)

    def holders(self, page: int) -> int:
        """Returns how many rows hold a page."""
        return self._holders[page]

    def _evict(self) -> None:
        page, _ = self._cached.popitem(last=False)
        self.on_evict(page)
        del self._pages[self._names.pop(page).key]
        self._free.append(page)


NO_PAGE = b""
"""What the first page's key stands on."""


@dataclass(frozen=True)
class MediaItem:
    """A picture or clip in a prompt, or all of a kind whose places there can't be told apart.

    Attributes:
        key: hash of its content and of how it was cut into patches.
        tokens: its placeholders in the prompt, ascending.
        kind: *image* or *video*.
    """

    key: bytes
    tokens: Sequence[int]
    kind: str = "image"


@dataclass
class Prefix:
    """What stands in the slots of a row, as far as its prompt goes.

    Attributes:
        ids: token ids.
        media: pictures and clips among them, in their order.
        positions: RoPE positions, `[axes, tokens]` or `[tokens]`, of numpy; `None` until known.
        next_position: of the token behind, on each axis.
    """

    ids: list[int]
    media: list[MediaItem] = field(default_factory=list)
    positions: Any = None
    next_position: tuple[int, ...] = ()

    def keys(self, slots: int, generated: Sequence[int] = ()) -> list[bytes]:
        """Returns keys of the full pages of the text with `generated` behind it."""
        ids = array("q", [*self.ids, *generated])
        media = _by_page(self.media, slots)
        keys, before = [], NO_PAGE
        for page in range(len(ids) // slots):
            digest = blake2b(before, digest_size=16)
            digest.update(ids[page * slots : (page + 1) * slots].tobytes())
            for offset, key in media.get(page, ()):
                digest.update(b"%d:" % offset + key)
            before = digest.digest()
            keys.append(before)
        return keys

    def names(self, slots: int, generated: Sequence[int] = ()) -> list[PageName]:
        """Returns keys of positions, those of `generated` after the prompt's."""
        import numpy as np

        places = np.atleast_2d(np.asarray(self.positions, dtype=np.int64))  # [axes, tokens]
        following = np.array(self.next_position)[:, None] + np.arange(len(generated))
        places = np.concatenate([places, following], 1)
        return [
            PageName(key, blake2b(part.tobytes(), digest_size=16).digest())
            for page, key in enumerate(self.keys(slots, generated))
            for part in [np.ascontiguousarray(places[:, page * slots : (page + 1) * slots])]
        ]


def _by_page(media: list[MediaItem], slots: int) -> dict[int, list[tuple[int, bytes]]]:
    """Returns, for each page, which media begin in it or before it (negative), and where."""
    pages: dict[int, list[tuple[int, bytes]]] = {}
    for medium in media:
        for page in sorted({token // slots for token in medium.tokens}):
            first = medium.tokens[0] - page * slots
            pages.setdefault(page, []).append((first, medium.key))
    return pages


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
        return cache.read_page(row, index, self.pool.slots)

    def _drop(self, row: int) -> None:
        pages, pool = self.rows[row].pages, self.pool
        for index, page in enumerate(pages):
            is_last = pool.holders(page) == 1 and pool.name_of(page) is not None
            if is_last and not self.cached.keep(page, self.read(row, index)):
                pool.forget([page])
        super()._drop(row)


class SpareSlots:
    """Slots of a batch that has ended, for the next one.

    On CPUs new memory costs more than what is written to it: it comes page by page, when touched.

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


@torch.inference_mode()
def fill_pages(cache: SlotCache, pages: list[Content]) -> None:
    """Copy pages into the slots of a contiguous row that has none yet, as far as it has them."""
    if pages and not cache.slot_layers[0].is_initialized:
        stores = [store[None] for tensor in pages[0] for store in tensor]
        for layer, number in zip(cache.slot_layers, range(0, len(stores), 2), strict=True):
            layer.lazy_initialization(stores[number], stores[number + 1])
    for index, page in enumerate(pages):
        for mine, source in zip(cache.read_page(0, index, page[0].shape[2]), page, strict=True):
            mine.copy_(source[:, :, : mine.shape[2]])
