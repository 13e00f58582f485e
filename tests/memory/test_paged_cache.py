"""Rows whose slots lie in pages anywhere say what rows of contiguous slots say."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import tiny
from sooner.decoding.cache import SlotCache
from sooner.decoding.runner import Forward, ModelRunner
from sooner.decoding.tree import Tree
from sooner.errors import UnsupportedError
from sooner.memory.paged import PagedCache, PageStores
from sooner.memory.pages import PagePool
from sooner.memory.row_pages import RowMemory, RowPages
from sooner.models import adapt

SLOTS = 4
CPU = torch.device("cpu")
PARENTS = [-1, -1, 0, 0, 1]


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


def runner(
    family: str, memory: PageStores | None, rows: int, room: int = 40, capacity: int = 64
) -> ModelRunner:
    """A runner with a paged cache, or a contiguous one."""
    made = ModelRunner(adapt(tiny.model(family)), capacity)
    if memory is None:
        return made
    held = [RowMemory(memory.pool.take(-(-room // SLOTS))) for _ in range(rows)]
    pages = RowPages(memory.pool, held)
    made.cache = PagedCache(memory, capacity, rows, pages, CPU)
    return made


def stores(family: str, pages: int = 60) -> PageStores:
    return PageStores(PagePool(pages, SLOTS), adapt(tiny.model(family)).layers)


def poison(memory: PageStores) -> None:
    """Put NaN wherever no row may look: free pages and the trash page."""
    assert memory.stack is not None
    free = [page for page in range(memory.pool.size) if not memory.pool.holders(page)]
    memory.stack[:, [*free, memory.trash]] = torch.nan


def tokens(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randint(0, 80, shape, generator=generator)


def same(ours: Forward, theirs: Forward) -> None:
    torch.testing.assert_close(ours.logits, theirs.logits, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["llama", "qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize("chunk", [None, 5])
def test_blocks_trees_and_rows_that_leave(family: str, chunk: int | None) -> None:
    kind, rows = "text" if family == "llama" else "uneven", 3
    memory = stores(family)
    pair = [runner(family, memory, rows), runner(family, None, rows)]
    generator = torch.Generator().manual_seed(3)
    said = [
        one.prefill(one.adapter.embed_prompt(tiny.inputs(family, kind, rows)), chunk)
        for one in pair
    ]
    same(*said)
    nodes = tokens(generator, rows, len(PARENTS))
    tree = Tree.from_lists(nodes.tolist(), [PARENTS] * rows)
    roots = tokens(generator, rows)
    for round_ in range(4):
        poison(memory)
        same(*(one.forward_tree(roots[: len(one.lengths)], tree) for one in pair))
        entries = [[0, 2, 5], [0], [0, 1, 3]][: len(pair[0].lengths)]
        for one in pair:
            one.commit(entries)
        if round_ == 1:  # the last row takes the place of the first
            for one in pair:
                one.cache.release({0: []})
                one.keep_rows([2, 1])
            tree = Tree.from_lists(nodes[:2].tolist(), [PARENTS] * 2)
        assert pair[0].lengths == pair[1].lengths
    held = sum(len(row.pages) for row in pair[0].cache.pages.rows)
    assert memory.pool.used == held


def test_a_tree_of_more_entries_than_bits_is_read_with_a_mask() -> None:
    memory = stores("llama", 200)
    pair = [runner("llama", made, 2, capacity=400) for made in (memory, None)]
    prompt = tiny.inputs("llama", "text", 2)
    same(*(one.prefill(one.adapter.embed_prompt(prompt)) for one in pair))
    poison(memory)
    parents = [-1, *(node // 2 for node in range(139))]
    generator = torch.Generator().manual_seed(5)
    tree = Tree.from_lists(tokens(generator, 2, 140).tolist(), [parents] * 2)
    same(*(one.forward_tree(torch.tensor([3, 4]), tree) for one in pair))


def test_rows_that_join_copy_no_slot_and_share_a_prefix() -> None:
    """The second row begins on the pages of the first, and copies the one that it writes to."""
    family = "llama"
    memory = stores(family)
    first = runner(family, memory, 1)
    adapter = first.adapter
    ids = tokens(torch.Generator().manual_seed(1), 1, 2 * SLOTS)
    prompt = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    wanted = first.prefill(adapter.embed_prompt(prompt))
    own = first.cache.pages.rows[0].pages
    before = memory.stack[:, own].clone()

    fresh = memory.pool.take(5)
    memory.pool.hold(own[:1])
    second = ModelRunner(adapter, 64)
    pages = RowPages(memory.pool, [RowMemory([own[0], *fresh])])
    memory.copy(own[1], fresh[0])
    second.cache = PagedCache(memory, 64, 1, pages, CPU)
    second.cache.prefix = 2 * SLOTS - 1
    same(second.prefill(adapter.embed_prompt(prompt)), wanted)

    first.join(second)
    poison(memory)
    alone = runner(family, None, 1)
    alone.prefill(adapter.embed_prompt(prompt))
    roots = torch.tensor([7, 9])
    both = first.forward_chain(torch.stack([roots, roots + 1], 1))
    for row in range(2):
        one = alone.forward_chain(torch.stack([roots, roots + 1], 1)[row : row + 1])
        torch.testing.assert_close(both.logits[row], one.logits[0], atol=2e-5, rtol=1e-4)
    assert torch.equal(memory.stack[:, own[:1]], before[:, :1]), "a shared page was written to"
    assert torch.equal(memory.stack[:, own[1]], before[:, 1])


def test_what_rearranges_slots_is_refused() -> None:
    memory = stores("llama")
    one = runner("llama", memory, 1)
    one.prefill(one.adapter.embed_prompt(tiny.inputs("llama")))
    with pytest.raises(UnsupportedError, match="paged=False"):
        one.cache.slot_layers[0].shrink(4, 2)


def test_layers_of_different_width_are_refused() -> None:
    memory = PageStores(PagePool(2, SLOTS), 2)
    memory.of(0, torch.zeros(1, 2, 1, 8), torch.zeros(1, 2, 1, 8))
    with pytest.raises(UnsupportedError, match="layer 1 are not like those"):
        memory.of(1, torch.zeros(1, 2, 1, 6), torch.zeros(1, 2, 1, 6))


def kept(cache: SlotCache) -> list[Any]:
    return [layer.stores for layer in cache.slot_layers]


def test_random_pages_hold_what_rows_of_slots_hold() -> None:
    """Slot by slot, after many blocks, paths and exchanges of rows."""
    rng = random.Random(0)
    memory = PageStores(PagePool(80, SLOTS), 2)
    for _ in range(20):
        rows = rng.randint(1, 3)
        pages = RowPages(memory.pool, [RowMemory([]) for _ in range(rows)])
        pages.grow([8] * rows)
        paged = PagedCache(memory, 60, rows, pages, CPU)
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
                path = torch.tensor([one[1:] + [0] * (width - len(one)) for one in paths]).long()
                entries = torch.tensor([len(one) for one in paths])
                cache.commit_path(path.view(len(paths), -1), entries, is_chain=False)
                cache.note_commit(entries.tolist())
            if len(paths) > 1 and rng.random() < 0.2:
                order = rng.sample(range(len(paths)), rng.randint(1, len(paths)))
                for cache in caches:
                    cache.keep_rows(order)
            for row, length in enumerate(caches[0].lengths):
                for ours, theirs in zip(kept(caches[0]), kept(caches[1]), strict=True):
                    for mine, other in zip(ours, theirs, strict=True):
                        assert torch.equal(mine[row, :, :length], other[row, :, :length])
        caches[0].keep_rows([])
        assert memory.pool.used == 0
