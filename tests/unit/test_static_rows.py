"""Rows come and go; what a step knows of them stays where it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import sooner
import tiny
from method_matrix import METHODS
from sooner.engine.cache import SlotCache

aten = torch.ops.aten
HEADS, WIDTH, CAPACITY, LAYERS = 2, 3, 20, 3
CPU = torch.device("cpu")


class Copied(TorchDispatchMode):
    """Counts copies into keys and values, tensors of more than three axes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        writes = (aten.copy_.default, aten.scatter_.src, aten.index_put_.default)
        self.calls += func in writes and args[0].ndim > 3
        return func(*args, **(kwargs or {}))


def filled(rows: int, max_rows: int, first: float = 0.0, capacity: int = CAPACITY) -> SlotCache:
    """Rows of 4, 5, 6, ... slots whose keys are told apart by layer, row and slot."""
    cache = SlotCache(LAYERS, capacity, max_rows)
    write(cache, rows, 4 + rows, first)
    cache.set_lengths([4 + row for row in range(rows)])
    return cache


def write(cache: SlotCache, rows: int, width: int, first: float) -> None:
    cache.reserve(width)
    slots = torch.arange(width).view(1, 1, -1, 1) + 100.0 * torch.arange(rows).view(-1, 1, 1, 1)
    for layer in range(LAYERS):
        keys = (first + slots + 10_000.0 * layer).expand(rows, HEADS, width, WIDTH)
        cache.update(keys, -keys, layer)


def content(cache: SlotCache) -> list[list[list[float]]]:
    """Returns, for each row and layer, what stands in its slots; values are checked against
    keys.
    """
    rows = []
    for row, length in enumerate(cache.lengths):
        layers = []
        for layer in cache.slot_layers:
            keys, values = (store[row, :, :length] for store in layer.stores)
            assert torch.equal(keys, -values)
            assert torch.equal(keys, keys[:1, :, :1].expand_as(keys)), "of every head and dim"
            layers.append(keys[0, :, 0].tolist())
        rows.append(layers)
    return rows


def addresses(cache: SlotCache) -> list[int]:
    lengths = cache.lengths_on(CPU)
    assert lengths.tolist() == cache.lengths
    stores = [store for layer in cache.slot_layers for store in layer.stores]
    return [lengths.data_ptr(), *(store.data_ptr() for store in stores)]


@given(st.data())
def test_rows_come_and_go_at_a_fixed_address(data: st.DataObject) -> None:
    """In any order, rows that were prefilled in place or apart."""
    room = data.draw(st.integers(2, 5))
    cache = filled(data.draw(st.integers(1, room)), room)
    expected, places = content(cache), addresses(cache)
    for number in range(1, 6):
        free = room - len(cache.lengths)
        if free and data.draw(st.booleans()):
            rows = data.draw(st.integers(1, free))
            other = SlotCache(LAYERS, CAPACITY)
            if data.draw(st.booleans()):
                other.borrow(cache, rows)
            write(other, rows, 4 + rows, 1000.0 * number)
            other.set_lengths([4 + row for row in range(rows)])
            if len(cache.lengths) > 1 and data.draw(st.booleans()):  # a row ends meanwhile
                cache.select_rows(list(range(len(cache.lengths) - 1)))
                expected.pop()
            expected += content(other)
            cache.merge(other)
        elif len(cache.lengths) > 1:
            order = st.permutations(range(len(cache.lengths)))
            stay = data.draw(order)[: data.draw(st.integers(1, len(cache.lengths)))]
            cache.select_rows(stay)
            expected = [expected[row] for row in stay]
        assert content(cache) == expected
        assert addresses(cache) == places


def test_layers_that_differ_have_separate_memory() -> None:
    cache = SlotCache(2, CAPACITY, 2)
    with torch.inference_mode():
        for layer, heads in enumerate((2, 3)):
            states = torch.arange(5.0).view(1, 1, -1, 1).expand(1, heads, -1, WIDTH)
            cache.update(states, -states, layer)
    assert not any(store.is_inference() for store in cache.buffers)
    cache.set_lengths([2])
    cache.reserve(3)
    path, entries = torch.tensor([[2]]), torch.tensor([2])
    cache.commit_path(path, entries, is_chain=False)
    for layer in cache.slot_layers:
        assert layer.keys[0, 0, :4, 0].tolist() == [0, 1, 2, 4]


@pytest.mark.parametrize("name", ["plain", "noisy-4", "sd-tree", "eagle"])
def test_an_engine_prefills_a_request_where_it_decodes(name: str) -> None:
    """No key or value of the target is copied when a request joins."""
    family = "qwen2_5_vl"
    engine = sooner.Engine(tiny.model(family), METHODS[name](family), max_rows=4)
    options: dict[str, Any] = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None}
    joins: list[Copied] = []

    def counted(join: Callable[..., None]) -> Callable[..., None]:
        def watched(self: SlotCache, other: SlotCache) -> None:
            with Copied() as copied:
                join(self, other)
            assert self is not engine.batch.session.target.cache or not copied.calls  # type: ignore[union-attr]
            joins.append(copied)

        return watched

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SlotCache, "merge", counted(SlotCache.merge))
        for _ in range(3):
            engine.add_request(tiny.inputs(family), **options)
        engine.run()
    assert len(joins) >= 2
