"""Pages of slots: who holds them, which prefix stands in them, which are taken next."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from ...errors import MemoryRanOutError
from ..attention.block import PAGE


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
        self,
        size: int,
        slots: int = PAGE,
        on_evict: Callable[[int], None] = lambda page: None,
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
class Medium:
    """A picture or clip that a prompt contains.

    Attributes:
        key: hash of its content and of how it was cut into patches.
        tokens: its placeholders in the prompt, ascending.
    """

    key: bytes
    tokens: Sequence[int]


@dataclass
class Prefix:
    """What stands in the slots of a row, as far as its prompt goes.

    Attributes:
        ids: token ids.
        media: pictures and clips among them, in their order.
        positions: RoPE positions, `[axes, tokens]` or `[tokens]`, an array of numpy; `None` before
            they are known.
        next_position: of the token behind, on each axis.
    """

    ids: list[int]
    media: list[Medium] = field(default_factory=list)
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


def _by_page(media: list[Medium], slots: int) -> dict[int, list[tuple[int, bytes]]]:
    """Returns, for each page, which media begin in it, or in the pages before (negative), and
    where.
    """
    pages: dict[int, list[tuple[int, bytes]]] = {}
    for medium in media:
        for page in sorted({token // slots for token in medium.tokens}):
            first = medium.tokens[0] - page * slots
            pages.setdefault(page, []).append((first, medium.key))
    return pages
