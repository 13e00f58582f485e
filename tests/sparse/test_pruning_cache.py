"""A cache layer without the first prompt tokens is the tail of one that has them all."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sooner.engine.cache import SlotCache

CAPACITY = 24


def entries(first: int, count: int, rows: int = 1) -> torch.Tensor:
    """Numbered states, `[rows, 1, count, 1]`."""
    return torch.arange(first, first + count).float().view(1, 1, -1, 1).expand(rows, -1, -1, -1)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_shorter_layer_follows_every_move(data: st.DataObject) -> None:
    """Blocks, trees whose paths are gathered, and rollbacks; layer 0 is whole, layer 1 is not."""
    width = data.draw(st.integers(2, 8))
    gone = data.draw(st.integers(1, width - 1))
    cache = SlotCache(2, CAPACITY)
    cache.slot_layers[1].dropped = gone
    cache.update(entries(0, width), entries(100, width), 0)
    cache.update(entries(gone, width - gone), entries(100 + gone, width - gone), 1)
    cache.set_lengths([width])
    fresh = 1000
    for _ in range(data.draw(st.integers(1, 6))):
        if data.draw(st.booleans()) and cache.longest > width:
            cache.set_lengths([data.draw(st.integers(width, cache.longest))])
            continue
        block = data.draw(st.integers(1, 4))
        if cache.longest + block > CAPACITY:
            continue
        seen = [cache.update(entries(fresh, block), entries(-fresh, block), n) for n in (0, 1)]
        for whole, short in zip(*seen, strict=True):
            assert torch.equal(whole[:, :, gone:], short)
        branches = st.sets(st.integers(1, block - 1)) if block > 1 else st.just(set())
        path = [0, *sorted(data.draw(branches))]
        cache.commit_path(torch.tensor([path[1:]]).long(), torch.tensor([len(path)]), False)
        cache.note_commit([len(path)])
        fresh += block
    first, second = cache.slot_layers
    for whole, short in zip(first.stores, second.stores, strict=True):
        assert torch.equal(whole[:, :, gone : cache.longest], short[:, :, : cache.longest - gone])
    assert second.get_mask_sizes(2) == (first.get_mask_sizes(2)[0] - gone, 0)
    assert second.keys.shape[2] == CAPACITY + 1 - gone, "a trash slot lies behind them"
