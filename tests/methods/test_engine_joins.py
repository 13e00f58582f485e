"""Which requests share a batch, how long a round waits, and prompts that wait for slack."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

import sooner
import tiny
import tiny_canvas
from method_matrix import LONG, METHODS
from methods.test_engine import alone, greedy, method_of
from sooner.engine.runner import ModelRunner
from sooner.engine.scheduler import TokenPace


def test_rows_that_lack_other_numbers_of_tokens_wait_for_a_separate_batch() -> None:
    """And ask to join only once."""
    family, counts = "llava_onevision", Counter[str]()
    model = tiny.model(family)
    with sooner.FastV(0.5, layer=1)(model), pytest.MonkeyPatch.context() as patch:
        engine = sooner.Engine(model)
        first = engine.add_request(tiny.inputs(family, "image"), **greedy(LONG))
        other = engine.add_request(tiny.inputs(family, "text"), **greedy(9))
        engine.step()
        assert engine.batch is not None
        join = type(engine.batch).merge

        def counted(*args: Any) -> int:
            counts["to join"] += 1
            return join(*args)

        patch.setattr(type(engine.batch), "merge", counted)
        engine.run()
    assert counts["to join"] == 1
    for request, kind in ((first, "image"), (other, "text")):
        assert request.tokens is not None
        expected = sooner.generate(
            model, tiny.inputs(family, kind), prefill=sooner.FastV(0.5, layer=1),
            **greedy(len(request.tokens[0])),
        )  # fmt: skip
        assert request.tokens == expected.tokens


@pytest.mark.parametrize("name", ["parallel", "picture"])
def test_what_needs_a_separate_batch_reports_it_and_waits(name: str) -> None:
    if name == "parallel":
        model, method, inputs = tiny.model("llama"), METHODS[name]("llama"), tiny.inputs("llama")
    else:
        words = torch.arange(40, 50)[None]
        model, method, inputs = tiny_canvas.model("chameleon"), None, {"input_ids": words}
    engine = sooner.Engine(model, method)
    first, second = (engine.add_request(inputs, **greedy(9)) for _ in range(2))
    largest = 0
    notes: set[str] = set()
    while not engine.is_idle:
        engine.step()
        largest = max(largest, len(engine.running) + (engine.prefilling is not None))
        if engine.batch is not None:
            notes |= set(engine.batch.stats.notes)
    assert largest == 1
    assert any("a batch of its own" in note for note in notes)
    assert first.tokens == second.tokens == sooner.generate(model, inputs, **greedy(9)).tokens


def test_requests_bring_their_drafts() -> None:
    """HSD's are a request's; another method waits until the batch is free."""
    engine = sooner.Engine(tiny.model("llama"), max_rows=4)
    text = alone("llama", "text", 1, LONG)[0]
    right, wrong = sooner.HSD([[text]], nodes=8), sooner.HSD([[text[::-1]]], nodes=8)
    requests = [
        engine.add_request(tiny.inputs("llama", "text"), method=method, **greedy(LONG))
        for method in (right, wrong, sooner.HSD([[]], nodes=8), None, sooner.HSD([[text]], nodes=4))
    ]
    together, steps = [], 0
    while not engine.is_idle:
        engine.step()
        together.append({requests.index(row) for row in engine.running})
        steps += 1
    assert all(request.tokens == [text] for request in requests)
    assert any(len(some) > 1 for some in together)
    assert not any(3 in some and len(some) > 1 for some in together)
    assert not any(4 in some and len(some) > 1 for some in together)


def test_each_request_reports_the_deviation_of_its_rows() -> None:
    family, kind = "llama", "text"
    inputs = [tiny.inputs(family, kind, 1, seed) for seed in range(3)]
    method = method_of("relaxed", family)
    apart = [
        sooner.generate(tiny.model(family), item, method, **greedy(LONG)).stats.deviation
        for item in inputs
    ]
    engine = sooner.Engine(tiny.model(family), method)
    requests = [engine.add_request(item, **greedy(LONG)) for item in inputs]
    while engine.batch is None:
        engine.step()
    batch = engine.batch
    engine.run()
    assert batch is not None
    for request, expected in zip(requests, apart, strict=True):
        assert expected is not None
        assert [item.as_dict() for item in request.deviations] == [expected.as_dict()]
    assert batch.stats.deviation is not None
    total = sum(int(item.accepted.sum()) for request in requests for item in request.deviations)
    assert int(batch.stats.deviation.accepted.sum()) == total > 0


@pytest.mark.parametrize("name", ["plain", "noisy-4"])
@pytest.mark.parametrize("chunk", [2, 5])
def test_decoding_rows_never_wait_for_more_than_a_chunk(
    name: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in what forwards cost: so much for each, and for each of its tokens."""
    family, spent = "llama", 0.0
    target = tiny.model(family)

    def cost(tokens: int) -> float:
        return 10.0 + tokens

    original, run_chunk = ModelRunner._forward, ModelRunner._run_chunk

    def forward(self: ModelRunner, tokens: torch.Tensor, *args: Any) -> Any:
        nonlocal spent
        spent += cost(tokens.shape[1])
        return original(self, tokens, *args)

    def prefill(self: ModelRunner, prompt: Any, start: int, end: int, *args: Any) -> Any:
        nonlocal spent
        spent += cost(end - start)
        return run_chunk(self, prompt, start, end, *args)

    monkeypatch.setattr(ModelRunner, "_forward", forward)
    monkeypatch.setattr(ModelRunner, "_run_chunk", prefill)
    engine = sooner.Engine(target, METHODS[name](family), prefill_chunk=chunk, max_rows=6)
    rounds, gaps = [], []
    for _ in range(5):
        engine.add_request(tiny.inputs(family, "text"), **greedy(LONG))
    while not engine.is_idle:
        decoded = engine.batch is not None
        before = spent
        admitted = engine.prefilling
        engine.step()
        if decoded:
            gaps.append(spent - before)
            if admitted is None and engine.prefilling is None:
                rounds.append(spent - before)
    assert rounds
    assert max(gaps) > max(rounds), "something was prefilled beside them"
    assert max(gaps) <= cost(chunk) + 1.2 * max(rounds)


def test_relaxed_rows_that_draw_wait_for_those_that_do_not() -> None:
    """The threshold weighs scores that a greedy row among drawn ones does not have."""
    method = method_of("hsd-relaxed", "llama")
    engine = sooner.Engine(tiny.model("llama"), method, max_rows=4)
    drawn = {**greedy(9), "do_sample": True, "seed": 1}
    settings = [greedy(LONG), drawn, greedy(9), drawn]
    requests = [engine.add_request(tiny.inputs("llama", "text"), **options) for options in settings]
    while not engine.is_idle:
        engine.step()
        kinds = {row.options.sampling["do_sample"] for row in engine.running}
        assert len(kinds) < 2
    for request, options in zip(requests, settings, strict=True):
        expected = sooner.generate(
            tiny.model("llama"), tiny.inputs("llama", "text"), method, **options
        )
        assert request.tokens == expected.tokens


class Seconds:
    """A clock that is told the time."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def run_paced(pace: TokenPace | None, clock: Seconds) -> tuple[list[Any], int]:
    """Two requests of which the second comes when the first decodes, and the steps it waits."""
    model, inputs = tiny.model("llama"), tiny.inputs("llama", "text")
    engine = sooner.Engine(model, pace=pace, prefill_chunk=512)
    options: dict[str, Any] = {"max_new_tokens": 24, "do_sample": False, "eos_token_id": None}
    first = engine.add_request(inputs, **options)
    engine.step()
    second = engine.add_request(inputs, **options)
    waited = 0
    while not engine.is_idle:
        clock.now += 1.0
        engine.step()
        waited += second.is_waiting
    return [first.tokens, second.tokens], waited


def test_an_engine_holds_a_prompt_until_the_row_has_slack_with_the_same_ids() -> None:
    clock = Seconds()
    plain, none = run_paced(None, clock)
    assert none == 0
    pace = TokenPace(1.5, patience=1000.0, clock=clock)
    inputs = tiny.inputs("llama", "text")
    pace.took(("whole", (inputs["input_ids"].shape[1] - 1).bit_length()), 4.0)
    # Each step of a second gives the row half a second of slack, and the prompt takes four.
    outputs, waited = run_paced(pace, clock)
    assert outputs == plain
    assert 5 <= waited <= 9
    hasty = TokenPace(1e-6, patience=3.0, clock=clock)
    outputs, waited = run_paced(hasty, clock)
    assert outputs == plain
    assert waited == 2
    outputs, waited = run_paced(TokenPace(1e-6, patience=1000.0, clock=clock), clock)
    assert outputs == plain
    assert waited > 20  # until the first request has ended
