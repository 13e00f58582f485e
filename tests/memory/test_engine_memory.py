"""An engine that counts pages says what HF's generate says, whatever is shared or turned out."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import sooner
import tiny
from covering import thinned
from method_matrix import METHODS
from page_prompts import GREEDY, SLOTS, alone, may_write, prompt_of
from sooner.engine.memory.manager import EngineMemory

SCHEDULES = 12
"""Schedules of all methods and families together; core runs 6 of them, and `make soak` 300."""

JOINING = ("plain", "prompt-lookup", "noisy-4", "sd-tree", "words-only", "eagle", "hsd")
TAILS = ((), (5,), (5, 6, 7, 8, 9), (5, 6, 7, 8, 9, 5, 6, 7, 8), (5, 6, 7, 70, 71, 72, 73, 74, 75))


def poison(memory: EngineMemory) -> None:
    """Put NaN into every page that no row holds and nobody may find."""
    if (stores := memory._stores) is None or stores.stack is None:
        return
    pool = memory.pool
    free = [page for page in range(pool.size)
            if not pool.holders(page) and pool.name_of(page) is None]  # fmt: skip
    stores.stack[:, [*free, stores.trash]] = torch.nan


def check(engine: sooner.Engine) -> None:
    """Every held page is a row's, and every row has the pages that its slots need."""
    assert engine.memory is not None
    pool = engine.memory.pool
    caches = [] if engine.batch is None else [engine.batch.session.target.cache]
    if engine.prefilling is not None:
        caches.append(engine.prefilling.prefill.session.target.cache)
    rows = [row for cache in caches for row in cache.pages.rows]
    pages = [page for row in rows for page in row.pages]
    assert {page: pages.count(page) for page in pages} == {
        page: pool.holders(page) for page in range(pool.size) if pool.holders(page)
    }
    for cache in caches:
        for length, row in zip(cache.lengths, cache.pages.rows, strict=False):
            assert len(row.pages) * SLOTS >= length
            free_pages = row.pages[length // SLOTS :]
            assert all(may_write(pool, page) for page in free_pages)


def schedule(seed: int) -> tuple[int, int]:
    """Requests come at random; returns how many tokens were reused, and how often rows left."""
    rng = random.Random(seed)
    family = rng.choice(tiny.FAMILIES)
    name = rng.choice([method_name for method_name in JOINING if method_name in METHODS])
    method = METHODS[name](family)
    kinds = rng.sample(tiny.kinds(family), min(2, len(tiny.kinds(family))))
    paged = rng.random() < 0.5 and sooner.models.adapt(tiny.model(family)).takes_blocks
    longest = max(prompt_of(family, kind, TAILS[-1])["input_ids"].shape[1] for kind in kinds)
    minimum = -(-(longest + 23 + method.largest_block() + 1) // SLOTS)
    engine = sooner.Engine(
        tiny.model(family), method, max_rows=rng.choice((2, 4)),
        prefill_chunk=rng.choice((None, 3, 7)), pages=minimum + rng.choice((0, 5, minimum // 2,
        minimum)), paged=paged,
    )  # fmt: skip
    assert engine.memory is not None
    requests: list[tuple[Any, ...]] = []
    outputs: dict[int, list[int]] = {}
    left = rng.randint(4, 8)
    while left or not engine.is_idle:
        if left and rng.random() < 0.5:
            kind, tail = rng.choice(kinds), rng.choice(TAILS)
            rows, new = rng.choice((1, 1, 1, 1, 2)), rng.choice((1, 9, 23, 23))
            number = len(requests)

            def tell(row: int, tokens: list[int], drafted: int, number: int = number) -> None:
                if not row:
                    outputs.setdefault(number, []).extend(tokens)

            inputs = prompt_of(family, kind, tail, rows)
            request = engine.add_request(inputs, max_new_tokens=new, on_tokens=tell, **GREEDY)
            requests.append((request, kind, tail, rows, new))
            left -= 1
        engine.step()
        with torch.inference_mode():
            poison(engine.memory)
        check(engine)
    for number, (request, kind, tail, rows, new) in enumerate(requests):
        where = (seed, family, name, kind, tail, rows, new, paged)
        if rows > 1 and request.error is not None:
            assert "pages" in str(request.error)
            continue
        assert request.error is None, (where, request.error)
        for row, whole in zip(request.tokens, alone(family, kind, tail, rows), strict=True):
            assert row == whole[:new], where
        assert outputs[number] == request.tokens[0], where
    assert engine.memory.pool.used == 0
    turned_out = sum(request.preempted is not None for request, *_ in requests)
    return sum(request.cached_tokens for request, *_ in requests), turned_out


@pytest.mark.parametrize("seed", thinned(range(SCHEDULES), range(6)))
def test_a_request_gets_the_tokens_it_gets_alone(seed: int) -> None:
    schedule(seed)


def test_the_schedules_share_and_turn_out() -> None:
    """Else they would show nothing."""
    results = [schedule(seed) for seed in range(100, 112)]
    assert sum(reused for reused, _ in results) > 100
    assert sum(turned_out for _, turned_out in results) > 3


@pytest.mark.soak
def test_and_so_it_does_in_many_more_schedules() -> None:
    for seed in range(SCHEDULES, 300):
        schedule(seed)
