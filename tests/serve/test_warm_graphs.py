"""A server has captured the graphs of its steps before the first request."""

from __future__ import annotations

from typing import Any

import pytest

import tiny
from method_matrix import METHODS
from recorders import StandIn
from sooner import Engine
from sooner.engine.graphs.steps import warm_graphs

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["plain", "prompt-lookup-short", "noisy-4"])
def test_requests_of_a_warm_engine_capture_nothing(name: str) -> None:
    recorder, family = StandIn(), "llama"
    engine = Engine(
        tiny.model(family), METHODS[name](family), max_rows=2, graphs=recorder, pages=24, paged=True
    )
    assert engine.launches_graphs
    warm_graphs(engine, tiny.inputs(family))
    recorded = recorder.recorded
    assert engine.is_idle
    assert recorded > 0
    ways: list[dict[str, Any]] = [
        {"do_sample": False}, {"do_sample": True, "temperature": 0.7, "seed": 3},
        {"do_sample": False, "eos_token_id": [93, 95], "logprobs": 2},
    ]  # fmt: skip
    for way in ways:
        requests = [
            engine.add_request(tiny.inputs(family, seed=seed), max_new_tokens=16, **way)
            for seed in range(3)
        ]
        engine.run()
        assert all(request.error is None for request in requests)
    assert recorder.recorded == recorded
