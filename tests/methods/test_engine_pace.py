"""Prompts that are held back while rows that decode have no slack, and for no longer."""

from __future__ import annotations

from typing import Any

import sooner
import tiny
from sooner.engine.pacing import TokenPace, size_of


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
    pace.took(("whole", size_of(inputs["input_ids"].shape[1])), 4.0)
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
