"""Pages are neither lost nor given twice, and rows of pages hold what rows of slots hold."""

from __future__ import annotations

import random

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from page_prompts import may_write
from sooner.engine.cache import SlotCache
from sooner.engine.memory.paged import PagedCache, PageStores
from sooner.engine.memory.pages import PageName, PagePool, Prefix, RowMemory, RowPages
from sooner.errors import MemoryRanOutError

SLOTS, SIZE, BLOCK = 3, 9, 4


class Row:
    """A row of the simulated cache: its text, and the pages whose slots hold the first tokens."""

    def __init__(self, text: list[int]) -> None:
        self.text, self.pages, self.length = text, list[int](), 0


class Pages(RuleBasedStateMachine):
    """Rows begin on what they find, grow, roll back and end; slots are simulated as well."""

    def __init__(self) -> None:
        super().__init__()
        self.evicted: list[int] = []
        self.pool = PagePool(SIZE, SLOTS, self.evicted.append)
        self.slots: list[list[int | None]] = [[None] * SLOTS for _ in range(SIZE)]
        self.rows: list[Row] = []

    def names(self, text: list[int]) -> list[PageName]:
        return Prefix(text, positions=range(len(text)), next_position=(len(text),)).names(SLOTS)

    def take(self, row: Row, slots: int) -> bool:
        missing = max(self.pool.pages_for(slots) - len(row.pages), 0)
        before = self.pool.available
        try:
            new_pages = self.pool.take(missing)
        except MemoryRanOutError:
            assert missing > before
            assert self.pool.available == before
            return False
        assert len(set(new_pages)) == len(new_pages) == missing
        for page in new_pages:
            assert may_write(self.pool, page)
            assert all(page not in other.pages for other in self.rows)
            self.slots[page] = [None] * SLOTS  # poison
        row.pages += new_pages
        return True

    def write(self, row: Row, start: int, end: int) -> None:
        for slot in range(start, end):
            page = row.pages[slot // SLOTS]
            assert may_write(self.pool, page), "a shared page is written to"
            self.slots[page][slot % SLOTS] = row.text[slot]

    @rule(data=st.data(), tail=st.lists(st.integers(0, 1), max_size=7))
    def begin(self, data: st.DataObject, tail: list[int]) -> None:
        """A prompt that shares its beginning with others, in part."""
        prefixes = [row.text[: row.length] for row in self.rows] or [[]]
        text = data.draw(st.sampled_from(prefixes)) + tail or [0]
        row = Row(text)
        names = self.names(text)
        prefix_pages = self.pool.find([name.key for name in names])
        assert len(prefix_pages) <= len(text) // SLOTS
        for page, name in zip(prefix_pages, names, strict=False):
            assert self.pool.name_of(page) == name
        whole = (len(text) - 1) // SLOTS
        self.pool.hold(prefix_pages)
        row.pages = prefix_pages[:whole]
        shared = min(len(prefix_pages) * SLOTS, len(text) - 1)
        if not self.take(row, len(text)):
            self.pool.drop(prefix_pages)
            return
        if shared % SLOTS:  # copy the page of which the last slots are written to
            self.slots[row.pages[whole]] = list(self.slots[prefix_pages[whole]])
            self.pool.drop(prefix_pages[whole:])
        self.rows.append(row)
        self.write(row, shared, len(text))
        row.length = len(text)
        for page, name in zip(row.pages, names, strict=False):
            self.pool.name(page, name)

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), block=st.lists(st.integers(0, 1), min_size=1, max_size=BLOCK))
    def grow(self, data: st.DataObject, block: list[int]) -> None:
        """A block is written, and a part of it kept."""
        row = data.draw(st.sampled_from(self.rows))
        row.text = row.text[: row.length] + block
        if self.take(row, len(row.text)):
            self.write(row, row.length, len(row.text))
            row.length += data.draw(st.integers(1, len(block)))
        row.text = row.text[: row.length]

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), is_named=st.booleans())
    def end(self, data: st.DataObject, is_named: bool) -> None:
        row = data.draw(st.sampled_from(self.rows))
        self.rows.remove(row)
        if is_named:
            for page, name in zip(row.pages, self.names(row.text), strict=False):
                self.pool.name(page, name)
        self.pool.drop(row.pages)

    @invariant()
    def every_page_is_somewhere(self) -> None:
        holders = [sum(page in row.pages for row in self.rows) for page in range(SIZE)]
        assert holders == [self.pool.holders(page) for page in range(SIZE)]
        assert self.pool.used == sum(count > 0 for count in holders)
        assert self.pool.used + self.pool.available == SIZE
        assert 0 <= self.pool.cached <= self.pool.available

    @invariant()
    def every_row_reads_only_its_text(self) -> None:
        for row in self.rows:
            read = [
                self.slots[row.pages[slot // SLOTS]][slot % SLOTS] for slot in range(row.length)
            ]
            assert read == row.text

    def teardown(self) -> None:
        for row in self.rows:
            self.pool.drop(row.pages)
        assert self.pool.used == 0
        assert len(set(self.pool.take(SIZE))) == SIZE, "a page is lost"
        assert self.pool.cached == 0


TestPages = Pages.TestCase
TestPages.settings = settings(stateful_step_count=40)


def named(pool: PagePool, count: int, start: int = 0) -> list[int]:
    """So many cached pages of one text."""
    pages = pool.take(count)
    for number, page in enumerate(pages):
        pool.name(page, PageName(b"%d" % (start + number), b""))
    pool.drop(pages)
    return pages


def test_the_lru_prefix_goes_first_and_its_end_before_its_beginning() -> None:
    gone: list[int] = []
    pool = PagePool(6, 4, gone.append)
    first, second = named(pool, 2), named(pool, 2, start=2)
    assert (pool.cached, pool.used, pool.available) == (4, 0, 6)
    pool.hold(first)
    pool.drop(first)  # used again
    pool.take(4)
    assert gone == second[::-1]
    pool.take(1)
    assert gone == [*second[::-1], first[1]]
    assert pool.find([b"0", b"1"]) == first[:1]


@torch.inference_mode()
def test_random_pages_hold_what_rows_of_slots_hold() -> None:
    """Slot by slot, after many blocks, paths and exchanges of rows."""
    rng = random.Random(0)
    memory = PageStores(PagePool(80, 4), 2)
    for _ in range(20):
        rows = rng.randint(1, 3)
        pages = RowPages(memory.pool, [RowMemory([]) for _ in range(rows)])
        pages.grow([8] * rows)
        paged = PagedCache(memory, 60, rows, pages, torch.device("cpu"))
        caches = [paged, SlotCache(2, 60, rows)]
        lengths = [rng.randint(1, 8) for _ in range(rows)]
        states = torch.randn(rows, 2, 8, 3)
        for cache in caches:
            for layer in range(2):
                cache.update(states + layer, -states, layer)
            cache.set_lengths(lengths)
        while caches[0].lengths and caches[0].longest < 40:
            block = rng.randint(1, 5)
            states = torch.randn(len(caches[0].lengths), 2, block, 3)
            paths = [
                sorted({0, *rng.sample(range(block), rng.randint(0, block - 1))})
                for _ in caches[0].lengths
            ]
            for cache in caches:
                cache.reserve(block)
                for layer in range(2):
                    cache.update(states + layer, -states, layer)
                width = max(map(len, paths))
                path = torch.tensor(
                    [entry_path[1:] + [0] * (width - len(entry_path)) for entry_path in paths]
                ).long()
                entries = torch.tensor([len(entry_path) for entry_path in paths])
                cache.commit_path(path.view(len(paths), -1), entries, is_chain=False)
                cache.note_commit(entries.tolist())
            if len(paths) > 1 and rng.random() < 0.2:
                order = rng.sample(range(len(paths)), rng.randint(1, len(paths)))
                for cache in caches:
                    cache.select_rows(order)
            for row, length in enumerate(caches[0].lengths):
                for ours, reference in zip(
                    *([layer.stores for layer in cache.slot_layers] for cache in caches),
                    strict=True,
                ):
                    for mine, other in zip(ours, reference, strict=True):
                        assert torch.equal(mine[row, :, :length], other[row, :, :length])
        caches[0].select_rows([])
        assert memory.pool.used == 0
