"""The slot cache against a model made of lists, and after a prefill that failed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import tiny
from sooner.engine.cache import SlotCache
from sooner.engine.runner import ModelRunner
from sooner.models import adapt

CAPACITY, HEADS, WIDTH = 24, 2, 3


class ListCache:
    """What a slot cache promises, one Python list of entry numbers a row."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []

    def visible(self, row: int, block: list[int]) -> list[int]:
        return self.rows[row] + block


def states(block: list[list[int]]) -> Tensor:
    """Entry numbers as states `[rows, heads, entries, width]`, another value in each head."""
    numbers = torch.tensor(block, dtype=torch.float32)[:, None, :, None]
    return numbers + torch.arange(HEADS).view(1, -1, 1, 1) * 1000.0 + torch.zeros(WIDTH)


def write(cache: SlotCache, block: list[list[int]]) -> tuple[Tensor, Tensor]:
    cache.reserve(len(block[0]))
    result = None
    for layer in range(len(cache.layers)):
        keys = states(block) + 0.25 * layer
        result = cache.update(keys, -keys, layer)
    assert result is not None
    return result


def commit(cache: SlotCache, paths: list[list[int]]) -> None:
    """Keep the block entries `paths[row]`, entry 0 first, as a step and its report do."""
    width = max(len(path) for path in paths)
    tails = torch.tensor([path[1:] + [0] * (width - len(path)) for path in paths])
    entries = [len(path) for path in paths]
    is_chain = all(path == list(range(len(path))) for path in paths)
    cache.commit_path(tails.view(len(paths), -1).long(), torch.tensor(entries), is_chain)
    cache.note_commit(entries)
    assert cache.lengths_on(tails.device).tolist() == cache.lengths


def check(cache: SlotCache, model: ListCache) -> None:
    """Every layer holds just what the lists say in front of each row's length."""
    for number, layer in enumerate(cache.layers):
        for row, tokens in enumerate(model.rows):
            expected = (
                states([tokens])[0] + 0.25 * number if tokens else torch.zeros(HEADS, 0, WIDTH)
            )
            assert torch.equal(layer.keys[row, :, : len(tokens)], expected)
            assert torch.equal(layer.values[row, :, : len(tokens)], -expected)
    assert cache.lengths == [len(tokens) for tokens in model.rows]


@st.composite
def paths(draw: st.DrawFn, block: int) -> list[int]:
    return [0, *sorted(draw(st.sets(st.integers(1, block - 1)) if block > 1 else st.just(set())))]


@given(st.data())
def test_the_cache_does_what_lists_do(data: st.DataObject) -> None:
    """Ragged prompts, blocks, kept paths, rollbacks and dropped rows, in any order."""
    rows = data.draw(st.integers(1, 4))
    cache, model, fresh = SlotCache(2, CAPACITY), ListCache(), iter(range(1, 1000))
    width = data.draw(st.integers(1, 6))
    prompt = [[next(fresh) for _ in range(width)] for _ in range(rows)]
    write(cache, prompt)
    lengths = [data.draw(st.integers(1, width)) for _ in range(rows)]
    cache.set_lengths(lengths)
    model.rows = [tokens[:length] for tokens, length in zip(prompt, lengths, strict=True)]
    check(cache, model)
    for _ in range(data.draw(st.integers(1, 5))):
        move = data.draw(st.sampled_from(["block", "block", "rewind", "drop"]))
        count = len(model.rows)
        if move == "drop" and count > 1:
            stay = data.draw(st.lists(st.integers(0, count - 1), min_size=1, unique=True))
            cache.select_rows(stay)
            model.rows = [model.rows[row] for row in stay]
        elif move == "rewind":
            lengths = [data.draw(st.integers(1, len(tokens))) for tokens in model.rows]
            cache.set_lengths(lengths)
            model.rows = [tokens[:n] for tokens, n in zip(model.rows, lengths, strict=True)]
        else:
            size = data.draw(st.integers(1, 4))
            if cache.longest + size > CAPACITY:
                continue
            block = [[next(fresh) for _ in range(size)] for _ in range(count)]
            write(cache, block)
            selection = [data.draw(paths(size)) for _ in range(count)]
            commit(cache, selection)
            for row, path in enumerate(selection):
                model.rows[row] += [block[row][entry] for entry in path]
        check(cache, model)


def test_a_write_beyond_the_capacity_is_refused_with_its_numbers() -> None:
    cache = SlotCache(1, 4)
    write(cache, [[1, 2, 3]])
    cache.set_lengths([3])
    cache.reserve(1)
    with pytest.raises(RuntimeError, match=r"4 slots can't hold 3 \+ 2"):
        cache.reserve(2)


@torch.no_grad()
def test_a_prefill_that_fails_half_way_leaves_an_empty_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    adapter = adapt(tiny.model("llama"))
    prompt = adapter.embed_prompt(tiny.inputs("llama", rows=2))
    runner, decode = ModelRunner(adapter, 40), adapter.decode

    def failing(embeds: Tensor, positions: Tensor, **kwargs: Any) -> Tensor:
        if int(positions[0, 0]) == 4:
            raise RuntimeError("the last chunk")
        return decode(embeds, positions, **kwargs)

    monkeypatch.setattr(adapter, "decode", failing)
    with pytest.raises(RuntimeError, match="the last chunk"):
        runner.prefill(prompt, 2)
    assert runner.cache.is_empty
    assert not runner.cache.is_prefilling
    monkeypatch.undo()
    again = runner.prefill(prompt, 2).logits
    assert torch.equal(again, ModelRunner(adapter, 40).prefill(prompt, 2).logits)
