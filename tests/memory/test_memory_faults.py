"""Memory that runs out, or holds no numbers, ends what it belongs to and leaves nothing behind."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import sooner
import tiny
from page_prompts import GREEDY, alone, prompt_of
from sooner.engine.memory import manager, pages
from sooner.engine.memory.paged import PagedCache, PageStores

FAMILY = "qwen2_5_vl"
TAIL = (5, 6, 7)
NO_MEMORY = "CUDA out of memory. Tried to allocate 7.00 GiB"
PLACES = pytest.mark.parametrize("paged", [False, True])


def engine(paged: bool, **options: Any) -> sooner.Engine:
    return sooner.Engine(tiny.model(FAMILY), pages=60, paged=paged, **options)


def ask(engine: sooner.Engine, tail: tuple[int, ...] = TAIL, **options: Any) -> Any:
    inputs = prompt_of(FAMILY, "video", tail)
    return engine.add_request(inputs, **{"max_new_tokens": 9, **GREEDY, **options})


def right(tail: tuple[int, ...] = TAIL) -> list[list[int]]:
    return [alone(FAMILY, "video", tail, 1)[0][:9]]


class Fails:
    """Raises once, then does what it stands for."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        owner: Any,
        name: str,
        when: Callable[..., bool] = lambda *args: True,
    ) -> None:
        self.own, self.left = getattr(owner, name), 1

        def instead(*args: Any, **options: Any) -> Any:
            if self.left and when(*args):
                self.left -= 1
                raise torch.OutOfMemoryError(NO_MEMORY)
            return self.own(*args, **options)

        patch.setattr(owner, name, instead)


@pytest.mark.parametrize(
    ("paged", "owner", "name"),
    [
        (False, manager, "fill_pages"),
        (False, pages.PageCopies, "find"),
        (True, PageStores, "copy"),
        (True, PagedCache, "_new_table"),
    ],
)
def test_a_row_that_finds_no_memory_takes_no_page(
    paged: bool, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At admission, beside a row that decodes; the prefix is there already."""
    batch = engine(paged)
    ask(batch)
    batch.run()
    before = ask(batch, (8,), max_new_tokens=20)
    batch.step()
    used = batch.pages_used
    failed = Fails(monkeypatch, owner, name)
    request = ask(batch)
    while request.error is None:
        batch.step()
    assert not failed.left
    assert isinstance(request.error, sooner.errors.MemoryRanOutError)
    assert batch.pages_used == used
    again = ask(batch)
    batch.run()
    assert again.tokens == right()
    assert again.cached_tokens > 0
    assert before.tokens == [alone(FAMILY, "video", (8,), 1)[0][:20]]
    assert batch.pages_used == 0


@PLACES
def test_a_row_that_a_forward_lost_gives_its_pages_back(
    paged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = engine(paged)
    lost = [ask(batch, max_new_tokens=20), ask(batch, (8, 9), max_new_tokens=20)]
    while len(batch.running) < 2:
        batch.step()
    Fails(monkeypatch, sooner.engine.runner.ModelRunner, "forward_tree")
    batch.step()
    assert all(isinstance(request.error, sooner.errors.MemoryRanOutError) for request in lost)
    assert batch.pages_used == 0
    again = ask(batch)
    batch.run()
    assert again.tokens == right()
    assert again.cached_tokens > 0, "prompts that were prefilled whole are as good as before"


@PLACES
@pytest.mark.parametrize("at", [0, 6])
def test_slots_that_hold_nan_are_not_reused(paged: bool, at: int) -> None:
    """A forward goes wrong once, in the prefill or behind it: nobody is handed its slots."""
    batch = engine(paged)
    adapter, original = batch.memory.adapter, batch.memory.adapter.decode
    left = [at]

    def decode(*args: Any, **options: Any) -> Any:
        left[0] -= 1
        return original(*args, **options) * (torch.nan if left[0] == -1 else 1)

    bad = ask(batch)
    batch.memory.adapter.decode = decode
    try:
        while bad.error is None:
            if batch.prefilling is not None:
                batch.prefilling.prefill.session.target.adapter.decode = decode
            if batch.batch is not None:
                batch.batch.session.target.adapter.decode = decode
            batch.step()
    finally:
        del adapter.decode
    assert isinstance(bad.error, sooner.errors.BadLogitsError)
    pool = batch.memory.pool
    assert (pool.used, pool.cached) == (0, 0)
    again = ask(batch)
    batch.run()
    assert (again.cached_tokens, again.tokens) == (0, right())


@PLACES
@pytest.mark.parametrize("how", ["ends", "is cancelled", "fails", "never began"])
def test_an_idle_engine_holds_no_pixels(paged: bool, how: str) -> None:
    batch = engine(paged)
    inputs = prompt_of(FAMILY, "video", TAIL)
    pixels = inputs["pixel_values_videos"] = inputs["pixel_values_videos"].clone()
    seen = weakref.ref(pixels)

    def tell(row: int, tokens: list[int], drafted: int) -> None:
        if how == "fails":
            raise ValueError("made up")

    request = batch.add_request(inputs, max_new_tokens=9, on_tokens=tell, **GREEDY)
    if how != "never began":
        batch.step()
    if how in ("is cancelled", "never began"):
        batch.cancel(request)
    batch.run()
    assert request.finish_reason is not None
    del inputs, pixels, request
    gc.collect()
    assert seen() is None
    assert batch.pages_used == 0
