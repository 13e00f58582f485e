"""A draft does not read again what it has read of a prompt, and drafts as if it had."""

from __future__ import annotations

from typing import Any

import pytest

import sooner
import tiny
from memory.test_prefix_reuse import PLACES, Counted, counted
from page_prompts import GREEDY, SLOTS, alone, prompt_of
from sooner.engine.memory import manager

QUESTION, OTHER = (5, 6, 7), (60, 61, 62, 63)
DRAFTS = 3


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("manager", "batch_slots"):
        monkeypatch.setattr(f"sooner.engine.memory.{module}.PAGE", SLOTS)
    assert manager.PAGE == SLOTS


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
    assert memory.slots.prefixes.content
    memory.pool.drop(memory.pool.take(memory.pool.available))
    assert not memory.slots.prefixes.content
    again, _ = drafted(engine, draft, family, "image", OTHER)
    assert again.tokens[0] == prompt_of(family, "image", OTHER)["input_ids"].shape[1]
