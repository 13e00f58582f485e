"""Rows whose slots lie in pages anywhere say what rows of contiguous slots say."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import tiny
from sooner.engine.cache import SlotCache
from sooner.engine.memory.paged import PagedCache, PageStores
from sooner.engine.memory.pages import PagePool
from sooner.engine.memory.row_pages import RowMemory, RowPages
from sooner.engine.runner import Forward, ModelRunner
from sooner.engine.tree import Tree
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
    row_memories = [RowMemory(memory.pool.take(-(-room // SLOTS))) for _ in range(rows)]
    pages = RowPages(memory.pool, row_memories)
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


def same(ours: Forward, other: Forward) -> None:
    torch.testing.assert_close(ours.logits, other.logits, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["llama", "qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize("chunk", [None, 5])
def test_blocks_trees_and_rows_that_leave(family: str, chunk: int | None) -> None:
    kind, rows = "text" if family == "llama" else "uneven", 3
    memory = stores(family)
    pair = [runner(family, memory, rows), runner(family, None, rows)]
    generator = torch.Generator().manual_seed(3)
    outputs = [
        part.prefill(part.adapter.embed_prompt(tiny.inputs(family, kind, rows)), chunk)
        for part in pair
    ]
    same(*outputs)
    nodes = tokens(generator, rows, len(PARENTS))
    tree = Tree.from_lists(nodes.tolist(), [PARENTS] * rows)
    roots = tokens(generator, rows)
    for round_ in range(4):
        poison(memory)
        same(*(part.forward_tree(roots[: len(part.lengths)], tree) for part in pair))
        entries = [[0, 2, 5], [0], [0, 1, 3]][: len(pair[0].lengths)]
        for part in pair:
            part.commit(entries)
        if round_ == 1:  # the last row takes the place of the first
            for part in pair:
                part.cache.release({0: []})
                part.select_rows([2, 1])
            tree = Tree.from_lists(nodes[:2].tolist(), [PARENTS] * 2)
        assert pair[0].lengths == pair[1].lengths
    used = sum(len(row.pages) for row in pair[0].cache.pages.rows)
    assert memory.pool.used == used


def stores_of(cache: SlotCache) -> list[Any]:
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
                for ours, reference in zip(stores_of(caches[0]), stores_of(caches[1]), strict=True):
                    for mine, other in zip(ours, reference, strict=True):
                        assert torch.equal(mine[row, :, :length], other[row, :, :length])
        caches[0].select_rows([])
        assert memory.pool.used == 0
