"""A draft does not read again what it has read; a batch takes the slots of the one before it."""

from __future__ import annotations

from typing import Any

import pytest

import sooner
import tiny
from memory.test_prefix_reuse import PLACES, Counted, counted
from page_prompts import GREEDY, SLOTS, alone, prompt_of
from sooner.engine import cache

QUESTION, OTHER = (5, 6, 7), (60, 61, 62, 63)
DRAFTS = 3


def engine_of(family: str, **options: Any) -> tuple[sooner.Engine, Any]:
    draft = tiny.noisy(family, 0.02)
    method = sooner.Speculative(draft, num_draft_tokens=DRAFTS)
    return sooner.Engine(tiny.model(family), method, pages=400, **options), draft


def drafted(
    engine: sooner.Engine, draft: Any, family: str, kind: str, tail: tuple[int, ...]
) -> tuple[Counted, Any]:
    with counted(draft) as count:
        request = engine.add_request(prompt_of(family, kind, tail), max_new_tokens=23, **GREEDY)
        engine.run()
    assert request.error is None, request.error
    assert request.tokens == alone(family, kind, tail, 1)
    return count, request


@PLACES
@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("qwen2", "text"),
        ("llava_onevision", "image"),
        ("qwen2_5_vl", "video"),
        ("qwen3_vl", "image"),
    ],
)
def test_a_second_question_is_drafted_for_from_what_is_known(
    family: str, kind: str, paged: bool
) -> None:
    engine, draft = engine_of(family, paged=paged)
    first, _ = drafted(engine, draft, family, kind, QUESTION)
    second, request = drafted(engine, draft, family, kind, OTHER)
    fresh, expected = drafted(*engine_of(family, paged=paged), family, kind, OTHER)
    prompt = prompt_of(family, kind, OTHER)["input_ids"].shape[1]
    assert first.tokens[0] >= prompt - 1 - SLOTS
    assert fresh.tokens[0] == prompt
    covered = prompt - second.tokens[0]
    assert covered == request.cached_tokens > 0
    assert second.tokens[1:] == fresh.tokens[1:]  # and it drafts alike
    assert request.num_draft_tokens == expected.num_draft_tokens
    assert second.encoded == 0
    assert fresh.encoded == (kind != "text")


@PLACES
def test_rows_that_join_and_leave_keep_their_slots(paged: bool) -> None:
    """Drafts of rows that left others behind, or took their places, belong to the right text."""
    family, kind = "qwen2_5_vl", "image"
    engine, draft = engine_of(family, paged=paged, max_rows=3)
    tails = (QUESTION, OTHER, (9, 9), (8, 7, 6, 5, 4), (1, 2))
    requests = [
        engine.add_request(prompt_of(family, kind, tail), max_new_tokens=5 + 4 * place, **GREEDY)
        for place, tail in enumerate(tails)
    ]
    engine.run()
    for place, (request, tail) in enumerate(zip(requests, tails, strict=True)):
        assert request.tokens == [alone(family, kind, tail, 1)[0][: 5 + 4 * place]]
    for tail in tails:
        fresh, expected = drafted(*engine_of(family, paged=paged), family, kind, tail)
        again, request = drafted(engine, draft, family, kind, tail)
        assert again.tokens[1:] == fresh.tokens[1:]
        assert request.num_draft_tokens == expected.num_draft_tokens


def test_pages_that_are_gone_take_their_drafts_with_them() -> None:
    family = "qwen2_5_vl"
    engine, draft = engine_of(family, paged=False)
    drafted(engine, draft, family, "image", QUESTION)
    memory = engine.memory
    assert memory is not None
    assert memory.draft_copies.content
    memory.pool.drop(memory.pool.take(memory.pool.available))
    assert not memory.draft_copies.content
    again, _ = drafted(engine, draft, family, "image", OTHER)
    assert again.tokens[0] == prompt_of(family, "image", OTHER)["input_ids"].shape[1]


FAMILY = "qwen2_5_vl"
TAILS = ((60, 61, 62, 63), (5, 6, 7), (9, 9))


@pytest.fixture
def allocations(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of all memory that is taken for slots."""
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
