"""Rows that leave for want of pages, and come back, say what they would have said."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sooner
import tiny
from method_matrix import METHODS
from page_prompts import GREEDY, SLOTS, alone, prompt_of
from sooner.methods.tolerance import Tolerance
from sooner.models.openvla.statistics import ActionTokens

PLACES = pytest.mark.parametrize("paged", [False, True])


SMALL = {
    **{name: METHODS[name] for name in ("plain", "prompt-lookup", "noisy-4", "sd-tree")},
    "eagle": lambda family: sooner.Eagle(tiny.head(family), nodes=4, depth=4, top_k=2),
}
"""Methods with blocks of a few entries."""


def crowd(method: str, paged: bool, pages: int, **options: Any) -> list[sooner.Request]:
    """Three requests whose prompts fit together, and whose answers do not."""
    family = "llama"
    engine = sooner.Engine(tiny.model(family), SMALL[method](family), pages=pages, paged=paged)
    requests = [
        engine.add_request(
            prompt_of(family, "text", (20 + number,)), max_new_tokens=23, **{**GREEDY, **options}
        )
        for number in range(3)
    ]
    engine.run()
    for request in requests:
        assert request.error is None, request.error
    return requests


@PLACES
@pytest.mark.parametrize("method", SMALL)
def test_the_youngest_leaves_and_generates_the_same_ids(method: str, paged: bool) -> None:
    pages = -(-(8 + 23 + SMALL[method]("llama").largest_block()) // SLOTS) + 3
    pages += method == "sd-tree"  # whose prompts fit together only so
    requests = crowd(method, paged, pages)
    assert requests[0].preempted is None, "the oldest stays"
    assert any(request.preempted is not None for request in requests[1:])
    for number, request in enumerate(requests):
        assert request.tokens == [alone("llama", "text", (20 + number,), 1)[0]]
        assert request.finish_reason == "length"


def test_a_relaxed_row_keeps_its_deviation(monkeypatch: pytest.MonkeyPatch) -> None:
    tolerance = Tolerance(ActionTokens(tiny.VOCAB, 40), 3, 4)
    method = sooner.Relaxed(METHODS["noisy-4"]("llama"), tolerance)
    monkeypatch.setitem(SMALL, "relaxed", lambda family: method)
    drafted: list[int] = []
    requests = crowd("relaxed", False, 12, on_tokens=lambda *report: drafted.append(report[2]))
    assert any(request.num_preemptions for request in requests)
    records = [record for request in requests for record in request.deviations]
    assert len(records) == 3
    assert sum(int(record.accepted.sum()) for record in records) == sum(drafted) > 0


@PLACES
@pytest.mark.parametrize("seed", [None, 7])
def test_draws_penalties_and_probabilities_go_on(seed: int | None, paged: bool) -> None:
    """With room for all and without: the same draws from the same seed, and no token twice."""
    options = {
        "do_sample": True, "top_k": 20, "repetition_penalty": 1.3, "min_new_tokens": 20,
        "logprobs": 2, "seed": seed,
    }  # fmt: skip
    torch.manual_seed(5)
    roomy = crowd("plain", paged, 60, **options)
    torch.manual_seed(5)
    tight = crowd("plain", paged, 11, **options)
    assert any(item.preempted is not None for item in tight)
    if seed is None:
        roomy, tight = roomy[:1], tight[:1]  # which number a request takes depends on its turn
    for ours, expected in zip(tight, roomy, strict=True):
        assert ours.tokens == expected.tokens
        assert [item.token for item in ours.logprobs[0]] == ours.tokens[0]
        logs = [[item.logprob for item in request.logprobs[0]] for request in (ours, expected)]
        torch.testing.assert_close(*map(torch.tensor, logs), atol=1e-4, rtol=1e-4)


def test_a_prefill_that_fails_gives_its_pages_back(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = sooner.Engine(tiny.model("llama"), pages=40, prefill_chunk=3)
    request = engine.add_request(prompt_of("llama", "text", ()), max_new_tokens=9, **GREEDY)
    engine.step()
    assert engine.memory.pool.used > 0
    adapter = engine.prefilling.prefill.session.target.adapter

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise ValueError("broken")

    monkeypatch.setattr(adapter, "decode", fail)
    engine.run()
    assert isinstance(request.error, ValueError)
    assert engine.memory.pool.used == 0
    again = engine.add_request(prompt_of("llama", "text", ()), max_new_tokens=9, **GREEDY)
    monkeypatch.undo()
    engine.run()
    assert again.tokens == [alone("llama", "text", (), 1)[0][:9]]


@PLACES
def test_the_last_in_order_leaves_and_waits_for_those_that_go_first(paged: bool) -> None:
    """What came last may be the most urgent."""
    engine = sooner.Engine(tiny.model("llama"), pages=11, paged=paged, max_rows=2)
    requests = [
        engine.add_request(
            prompt_of("llama", "text", (20 + number,)),
            max_new_tokens=23,
            priority=priority,
            **GREEDY,
        )
        for number, priority in enumerate((5.0, 9.0, 7.0, 1.0))
    ]
    ended: list[sooner.Request] = []
    assert [request.priority for request in engine.waiting] == [1.0, 5.0, 7.0, 9.0]
    while not engine.is_idle:
        ended += engine.step()
        orders = [request.order for request in engine.waiting]
        assert orders == sorted(orders)
        assert all(request.is_waiting for request in engine.waiting)
        assert not any(request.is_waiting for request in engine.running)
    assert [request.priority for request in ended] == [1.0, 5.0, 7.0, 9.0]
    assert [request.num_preemptions > 0 for request in ended] == [
        False, True, *(request.num_preemptions > 0 for request in ended[2:]),
    ]  # fmt: skip
    assert all(
        (request.preempted is not None) == (request.num_preemptions > 0) for request in requests
    )
    assert [request.tokens for request in requests] == [
        [alone("llama", "text", (20 + number,), 1)[0]] for number in range(4)
    ]
