"""The application end to end, without a socket."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import numpy as np
import pytest

from serve.robots import (
    SlowPolicy,
    body_of,
    from_json_numpy,
    json_numpy,
    request,
    running,
    until,
)
from sooner.tasks.act import Observation, Policy
from tiny_policy import INSTRUCTIONS, image, policy


@pytest.fixture(scope="module")
def chunks() -> Policy:
    """Says two actions at once."""
    return policy()


@pytest.fixture(scope="module")
def single() -> Policy:
    return policy(horizon=1)


def expected(policy: Policy, seed: int) -> np.ndarray:
    seen = Observation(image(seed), INSTRUCTIONS[seed % len(INSTRUCTIONS)])
    return policy.act([seen], method="plain")[0].values


async def ask(policy: Any, request: Any, **settings: Any) -> httpx.Response:
    async with running(policy, **settings) as client:
        return await client.post(
            "/act", content=request if isinstance(request, bytes) else body_of(request)
        )


def test_openvlas_client_gets_its_arrays(single: Policy, chunks: Policy) -> None:
    """It patches `json` so that arrays travel as `json_numpy` both ways."""
    body = request(2, image=json_numpy(image(2)))
    array = from_json_numpy(asyncio.run(ask(single, body)).json())
    np.testing.assert_array_equal(array, expected(single, 2)[0])
    assert array.dtype == np.float64
    arrays = asyncio.run(ask(chunks, body)).json()  # as OpenVLA-OFT's server does
    np.testing.assert_array_equal([from_json_numpy(part) for part in arrays], expected(chunks, 2))


def test_how_an_action_was_made_is_in_the_headers(single: Policy) -> None:
    headers = asyncio.run(ask(single, request(0))).headers
    names = ("x-sooner-mode", "x-sooner-method", "x-sooner-batch")
    assert [headers[name] for name in names] == ["exact", "plain", "1"]
    assert headers["server-timing"].startswith("queue;dur=")
    assert asyncio.run(ask(single, request(0, details=True))).status_code == 400


def test_who_hangs_up_is_not_computed() -> None:
    slow = SlowPolicy()

    async def scenario() -> None:
        async with running(slow) as client:
            slow.go.clear()
            first = asyncio.ensure_future(client.post("/act", json=request(instruction="1")))
            await until(slow.began.is_set)
            left = asyncio.Event()
            gone = asyncio.ensure_future(_leave(client.app, left))  # type: ignore[attr-defined]
            thread = client.handler.service  # type: ignore[attr-defined]
            await until(lambda: thread.num_requests == 2)
            left.set()
            await gone
            slow.go.set()
            assert (await first).status_code == 200

    asyncio.run(scenario())
    assert slow.batches == [["1"]]


async def _leave(app: Any, left: asyncio.Event | None = None) -> None:
    """Send a request and hang up once `left` is set; without it in the middle of the body."""
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
        "path": "/act", "raw_path": b"/act", "query_string": b"", "root_path": "",
        "scheme": "http", "headers": [(b"host", b"localhost")], "client": ("robot", 1),
        "server": ("robot", 80),
    }  # fmt: skip
    body = body_of(request()) if left else b"{"
    messages = [{"type": "http.request", "body": body, "more_body": left is None}]

    async def receive() -> Any:
        if messages:
            return messages.pop()
        if left is not None:
            await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        return

    await app(scope, receive, send)


def test_metrics_count_what_was_done(chunks: Policy) -> None:
    async def scenario() -> str:
        async with running(chunks) as client:
            await client.post("/act", json=request())
            await client.post("/act", json=request(image=3))
            return (await client.get("/metrics")).text

    text = asyncio.run(scenario())
    for line in (
        'sooner:request_success_total{finished_reason="stop",model_name="tiny"} 1.0',
        'sooner:num_requests_waiting{model_name="tiny"} 0.0',
        'sooner:request_queue_time_seconds_count{model_name="tiny"} 1.0',
        'sooner:e2e_request_latency_seconds_count{model_name="tiny"} 1.0',
    ):
        assert line in text


def test_a_deadline_of_the_request_comes_before_that_of_the_settings() -> None:
    slow = SlowPolicy()

    async def scenario() -> httpx.Response:
        async with running(slow, deadline_ms=60_000) as client:
            slow.go.clear()
            first = asyncio.ensure_future(client.post("/act", json=request(instruction="1")))
            await until(slow.began.is_set)
            late = await client.post("/act", json=request(deadline_ms=10))
            slow.go.set()
            assert (await first).status_code == 200
            return late

    late = asyncio.run(scenario())
    assert (late.status_code, late.json()["error"]["param"]) == (504, "deadline_ms")
    assert slow.batches == [["1"]]
