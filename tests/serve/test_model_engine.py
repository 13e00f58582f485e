"""The engine of a loaded model, asked as a server asks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tiny
from serve.real_service import planned
from sooner import HSD, Autoregressive, Engine, Method, PromptLookup, SDTree, Speculative, generate

PROMPT = [7, 8, 9, 10, 7, 8, 9, 10, 7, 8]
NEW = 24


def inputs(ids: list[int] = PROMPT) -> dict[str, torch.Tensor]:
    tokens = torch.tensor([ids])
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def model() -> Any:
    return tiny.model("qwen2")


def plain(ids: list[int] = PROMPT, **options: Any) -> list[int]:
    arguments = {"max_new_tokens": NEW, "eos_token_id": -1, "do_sample": False, **options}
    return generate(model(), inputs(ids), **arguments).tokens[0]


def run(engine: Engine, *wanted: dict[str, Any]) -> list[Any]:
    requests = [planned(engine.method, PROMPT, NEW, **fields) for fields in wanted]
    for request in requests:
        engine.add(request)
    engine.run()
    for request in requests:
        if request.error is not None:
            raise request.error
    return requests


GREEDY = {"do_sample": False}


def test_predictions_are_drafted_from_and_counted() -> None:
    expected = plain()
    engine = Engine(model(), HSD(drafts=[[]], nodes=8), max_rows=4)
    predicted, without = run(
        engine, {"prediction": expected, "sampling": GREEDY}, {"sampling": GREEDY}
    )
    assert predicted.tokens[0] == without.tokens[0] == expected
    assert predicted.num_draft_tokens >= NEW // 2
    assert 0 < predicted.num_drafts < NEW // 2
    assert without.num_draft_tokens == 0


PREDICTED: dict[str, Callable[[], Method]] = {
    "plain": lambda: Autoregressive(),
    "prompt-lookup": lambda: PromptLookup(),
    "speculative": lambda: Speculative(shaken(), num_draft_tokens=5),
    "sd-tree": lambda: SDTree(shaken()),
}


def shaken() -> Any:
    """A draft that is rarely right."""
    return tiny.model("qwen2", seed=1)


@pytest.mark.parametrize("name", PREDICTED)
@pytest.mark.parametrize("drawn", [False, True])
def test_a_prediction_is_the_draft_whatever_the_method(name: str, drawn: bool) -> None:
    sampling = {"do_sample": True, "temperature": 1.5} if drawn else GREEDY
    [alone] = run(Engine(model()), {"sampling": sampling, "seed": 3})
    expected = alone.tokens[0]
    assert len(set(expected)) > NEW // 2 or not drawn  # it does not draft itself
    # A wrong token in the middle: what follows is found again.
    guess = [*expected[: NEW // 2], 5, *expected[NEW // 2 + 1 :]]
    engine = Engine(model(), PREDICTED[name](), max_rows=4)
    predicted, other = run(
        engine, {"prediction": guess, "sampling": sampling, "seed": 3}, {"sampling": GREEDY}
    )
    assert predicted.tokens[0] == expected
    assert other.tokens[0] == plain()
    assert 0 < predicted.num_drafts < NEW // 2  # rounds
    assert predicted.num_draft_tokens >= NEW // 2
    together = name in ("prompt-lookup", "speculative")
    assert (predicted.first == 0 and other.first == 1) == together


FIRST = 6
"""Tokens before which nothing ends."""


@pytest.mark.parametrize("name", PREDICTED)
@pytest.mark.parametrize("drawn", [False, True])
def test_an_end_is_not_drawn_too_early(name: str, drawn: bool) -> None:
    bias = {(tiny.EOS,): 20.0}  # it would end at once
    sampling = {"do_sample": True, "temperature": 1.2} if drawn else GREEDY
    limited = {**sampling, "sequence_bias": bias, "min_new_tokens": FIRST}
    [early] = run(
        Engine(model(), PREDICTED[name](), max_rows=4),
        {"stops": [tiny.EOS], "sampling": limited, "seed": 3},
    )
    assert early.tokens[0].index(tiny.EOS) == FIRST == len(early.tokens[0]) - 1
    assert early.finish_reason == "stop"


def test_prompts_wait_where_they_are_and_pass_to_another_engine() -> None:
    first, second = Engine(model(), max_rows=1), Engine(model(), max_rows=1)
    runs, waits = (planned(first.method, PROMPT, NEW, sampling=GREEDY) for _ in range(2))
    first.add(runs)
    first.add(waits)
    first.step()
    assert waits.is_waiting
    assert waits.call is None
    first.close()
    assert waits.finish_reason == runs.finish_reason == "cancelled"
    second.add(waits)
    second.run()
    assert waits.tokens == [plain()]
    assert waits.finish_reason == "length"


def test_deadlines_end_requests_that_wait_and_that_decode() -> None:
    now = 0.0
    engine = Engine(model(), max_rows=1)
    engine.clock = lambda: now
    decodes, waits, last = (
        engine.add_request(inputs(), deadline=due, max_new_tokens=NEW, do_sample=False)
        for due in (5.0, 3.0, None)
    )
    for _ in range(4):
        engine.step()
    now = 3.0
    assert engine.step() == [waits]
    assert (waits.finish_reason, waits.tokens) == ("deadline", [[]])
    now = 5.0
    assert engine.step() == [decodes]
    assert decodes.finish_reason == "deadline"
    assert decodes.tokens is not None
    assert decodes.tokens[0] == plain()[: len(decodes.tokens[0])] != []
    engine.run()
    assert last.finish_reason == "length"
