"""A batch takes the slots of the one before it, as new memory costs more than its contents."""

from __future__ import annotations

from typing import Any

import pytest

import sooner
import tiny
from page_prompts import GREEDY, SLOTS, alone, prompt_of
from sooner.engine import cache
from sooner.engine.memory import manager

FAMILY = "qwen2_5_vl"
TAILS = ((60, 61, 62, 63), (5, 6, 7), (9, 9))


@pytest.fixture
def allocations(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of all memory that is taken for slots."""
    monkeypatch.setattr(manager, "PAGE", SLOTS)
    shapes: list[tuple[int, ...]] = []
    zeros = cache._zeros

    def counted(like: Any, *shape: int) -> Any:
        shapes.append(shape)
        return zeros(like, *shape)

    monkeypatch.setattr(cache, "_zeros", counted)
    return shapes


def output(engine: sooner.Engine, tail: tuple[int, ...], tokens: int = 9) -> Any:
    return engine.add_request(prompt_of(FAMILY, "image", tail), max_new_tokens=tokens, **GREEDY)


def test_a_batch_takes_the_slots_of_the_batch_before(allocations: list[tuple[int, ...]]) -> None:
    engine = sooner.Engine(tiny.model(FAMILY), pages=200, paged=False, max_rows=3)
    for tail in TAILS:
        request = output(engine, tail)
        engine.run()
        assert request.tokens == [alone(FAMILY, "image", tail, 1)[0][:9]]
    assert len(allocations) == 1


@pytest.mark.parametrize("joins", [False, True])
def test_a_draft_takes_the_slots_of_the_draft_before(
    allocations: list[tuple[int, ...]], joins: bool
) -> None:
    """One after the other, or joining those that decode."""
    draft = tiny.noisy(FAMILY)
    engine = sooner.Engine(
        tiny.model(FAMILY), sooner.Speculative(draft, num_draft_tokens=3), pages=400, paged=False,
        max_rows=3, prefill_chunk=3,
    )  # fmt: skip
    requests = []
    for tail in TAILS:
        requests.append(output(engine, tail, 20))
        while engine.batch is None or engine.prefilling is not None or engine.waiting:
            engine.step()
        if not joins:
            engine.run()
    engine.run()
    for request, tail in zip(requests, TAILS, strict=True):
        assert request.tokens == [alone(FAMILY, "image", tail, 1)[0][:20]]
        assert request.num_drafts > 0
    assert len(allocations) == 2  # the target's and the draft's
