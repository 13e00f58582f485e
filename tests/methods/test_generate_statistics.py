"""Counts, phases and times of a run add up."""

from __future__ import annotations

import sooner
import tiny
from methods.doors import FAMILY, GREEDY, KIND, decode


def test_statistics_add_up(method: sooner.Method) -> None:
    result = sooner.generate(tiny.model(FAMILY), tiny.inputs(FAMILY, KIND, 3), method, **GREEDY)
    stats = result.stats
    assert stats.tokens == sum(len(row) for row in result.tokens) == 42
    assert stats.decode_tokens == 39
    assert stats.num_spec_steps + stats.num_accepted_draft_tokens == stats.decode_tokens
    # Steps without a draft are in no run: nothing could be rejected.
    assert 0 <= stats.decode_tokens - sum(stats.runs) <= stats.acceptance_histogram[0]
    assert bool(stats.runs) == bool(stats.num_draft_tokens)
    assert stats.num_accepted_draft_tokens <= stats.num_draft_tokens
    assert stats.nfe >= 1 + stats.num_spec_steps / 3
    assert sum(len(times) for times in stats.verify_seconds.values()) == stats.nfe - 1
    assert all(seconds >= 0 for seconds in stats.seconds.values())


def test_draft_tokens_after_an_end_are_not_counted_as_accepted() -> None:
    inputs = tiny.inputs(FAMILY, KIND)
    free = decode("session", sooner.Autoregressive(), inputs, **GREEDY)
    output = free[0, inputs["input_ids"].shape[1] :].tolist()
    place = next(index for index in range(4, 14) if output[index] not in output[:index])
    itself = sooner.Speculative(tiny.model(FAMILY), num_draft_tokens=12)
    stats = sooner.generate(
        tiny.model(FAMILY), inputs, itself, max_new_tokens=20, eos_token_id=output[place]
    ).stats
    assert stats.acceptance_histogram == {place: 1}
    assert stats.decode_tokens == place
