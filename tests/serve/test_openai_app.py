"""The application around OpenAI's paths: models, health, who may ask, wake-ups for tokens."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import httpx
import pytest

from serve.chatting import (
    CHAT,
    HELLO,
    NAMES,
    ScriptedService,
    ask_sync,
    error_of,
    scripted,
    talking,
)
from serve.robots import until
from sooner.serve.http import is_local
from sooner.serve.openai.app import EventQueue


def test_models_are_listed() -> None:
    async def run(service: ScriptedService) -> None:
        async with talking(service) as client:
            listing = (await client.get("/v1/models")).json()
            assert [card["id"] for card in listing["data"]] == list(NAMES)
            assert listing["data"][0] == {
                "id": "tiny", "object": "model", "created": 1_700_000_000, "owned_by": "sooner",
                "max_model_len": 2048, "method": "plain", "mode": "exact",
            }  # fmt: skip
            assert (await client.get("/v1/models/org/tiny")).json()["id"] == "org/tiny"
            answer = await client.get("/v1/models/other")
            assert (answer.status_code, error_of(answer)["code"]) == (404, "model_not_found")

    with scripted() as service:
        asyncio.run(run(service))


@pytest.mark.slow
def test_health_fails_when_the_loop_stands_still() -> None:
    async def run(service: ScriptedService) -> None:
        now = service.ticked
        service.clock = lambda: now + 29
        async with talking(service) as client:
            answer = await client.get("/health")
            assert answer.status_code == 200
            assert answer.json() == {
                "status": "ok", "seconds_since_tick": 29.0, "running": 0, "waiting": 0,
            }  # fmt: skip
            assert (await client.get("/ready")).json() == {"status": "ready"}
        service.clock = lambda: now + 31
        async with talking(service) as client:
            answer = await client.get("/health")
            assert (answer.status_code, answer.json()["status"]) == (503, "stalled")

    with scripted() as service:
        asyncio.run(run(service))


@pytest.mark.slow
def test_silence_is_filled_with_pings() -> None:
    async def run(service: ScriptedService) -> str:
        async with talking(service, settings={"ping_seconds": 0.02}) as client:
            asking = asyncio.ensure_future(client.post(CHAT, json={**HELLO, "stream": True}))
            await until(lambda: service.requests)
            await asyncio.sleep(0.2)
            service.go.set()
            return (await asking).text

    with scripted("the fox") as service:
        service.go.clear()
        text = asyncio.run(run(service))
    lines = text.split("\n\n")
    assert lines[0].startswith("data: ")  # the role
    assert lines[1] == lines[2] == ": ping"
    assert lines[-2] == "data: [DONE]"


def test_deadlines_come_from_body_and_settings() -> None:
    with scripted() as service:
        ask_sync(service, {**HELLO, "deadline_ms": 5000})
        ask_sync(service, {**HELLO, "deadline_ms": 70_000}, settings={"deadline": 9.0})
        ask_sync(service, HELLO, settings={"deadline": 9.0})
        left = [
            round(request.deadline - request.arrived)
            for request in service.requests
            if request.deadline
        ]
        assert left == [5, 70, 9]
        answer = ask_sync(service, {**HELLO, "deadline_ms": "soon"})
        assert (answer.status_code, error_of(answer)["param"]) == (400, "deadline_ms")


def test_metrics_and_the_description() -> None:
    async def run(service: ScriptedService) -> None:
        async with talking(service) as client:
            assert "sooner:num_requests_running" in (await client.get("/metrics")).text
            assert "/openapi.json" in (await client.get("/docs")).text
            described = (await client.get("/openapi.json")).json()
            assert "ChatRequest" in set(described["components"]["schemas"])
            refs = set(_refs(described))
            known = {f"#/components/schemas/{name}" for name in described["components"]["schemas"]}
            assert refs <= known

    with scripted() as service:
        asyncio.run(run(service))


def _refs(described: Any) -> Any:
    if isinstance(described, dict):
        for key, value in described.items():
            if key == "$ref":
                yield value
            yield from _refs(value)
    elif isinstance(described, list):
        for entry in described:
            yield from _refs(entry)


OPEN = {"host": "0.0.0.0", "token": "secret"}


def got(method: str, path: str, settings: Any = None, **headers: str) -> httpx.Response:
    async def run(service: ScriptedService) -> httpx.Response:
        async with talking(service, settings=settings or {}) as client:
            body = HELLO if method == "POST" else None
            return await client.request(method, path, json=body, headers=headers)

    with scripted() as service:
        answer = asyncio.run(run(service))
        assert bool(service.requests) == (answer.status_code == 200 and method == "POST")
        return answer


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("//127.0.0.1", True), ("//127.0.0.1:8000", True), ("//localhost:80", True),
        ("//[::1]:8000", True), ("//LOCALHOST", True), ("http://localhost:3000", True),
        ("//127.0.0.1.evil.com", False), ("//evil.com:8000", False), ("null", False), ("", False),
        ("//localhost.evil.com", False), ("//[::1", False), ("//10.0.0.1", False),
        ("//evil.com#127.0.0.1", False), ("//127.0.0.1@evil.com", False), ("//:80", False),
    ],
)  # fmt: skip
def test_this_machine_is_distinguished_from_other_hosts(address: str, expected: bool) -> None:
    assert is_local(address) == expected


@pytest.mark.parametrize("path", [CHAT, "/health", "/docs", "/metrics", "/openapi.json"])
def test_other_hosts_and_origins_are_refused_on_the_loopback(path: str) -> None:
    method = "POST" if path == CHAT else "GET"
    answer = got(method, path, host="rebound.example:8000")
    assert (answer.status_code, error_of(answer)["code"]) == (403, "host_not_allowed")
    for origin in ("https://evil.example", "null"):
        answer = got(method, path, origin=origin)
        assert (answer.status_code, error_of(answer)["code"]) == (403, "origin_not_allowed")
        assert not [name for name in answer.headers if name.startswith("access-control")]
    answer = got(method, path, origin="http://localhost:3000")
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_off_the_loopback_the_token_is_required() -> None:
    for authorization in ("", "Bearer other", "Basic secret", "Bearer", "secret"):
        answer = got("POST", CHAT, OPEN, authorization=authorization, host="sooner.example")
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert error_of(answer)["type"] == "authentication_error"
    for path in ("/docs", "/openapi.json", "/metrics", "/v1/models", "/nothing"):
        assert got("GET", path, OPEN).status_code == 401
    right = {"authorization": "bearer secret", "host": "sooner.example"}
    assert got("POST", CHAT, OPEN, **right).status_code == 200
    assert got("GET", "/v1/models", OPEN, **right).status_code == 200


def test_probes_need_no_token_and_see_less() -> None:
    assert got("GET", "/health", OPEN).json() == {"status": "ok"}
    assert got("GET", "/ready", OPEN).json() == {"status": "ready"}
    health = got("GET", "/health", OPEN, authorization="Bearer secret").json()
    assert set(health) == {"status", "seconds_since_tick", "running", "waiting"}


def test_all_events_of_a_round_wake_the_loop_once_and_keep_their_order() -> None:
    async def run() -> tuple[list[int], int]:
        loop, events = asyncio.get_running_loop(), EventQueue()
        order: list[int] = []
        calls: list[Any] = []
        wake = loop.call_soon_threadsafe

        def counted(*args: Any) -> Any:
            calls.append(args)
            return wake(*args)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]

        def rounds() -> None:
            for first in range(0, 40, 8):
                for number in range(first, first + 8):
                    events.put(loop, partial(order.append, number))

        rounds()  # the loop can't go round meanwhile
        once = len(calls)
        await asyncio.to_thread(rounds)
        while len(order) < 80:
            await asyncio.sleep(0.001)
        return order, once

    order, once = asyncio.run(run())
    assert order == [*range(40), *range(40)]
    assert once == 1


@pytest.mark.slow
def test_tokens_wait_for_the_interval_and_what_is_urgent_takes_them_along() -> None:
    async def run() -> tuple[list[int], list[int], list[int], int]:
        loop, events = asyncio.get_running_loop(), EventQueue(interval=0.2)
        order: list[int] = []
        calls: list[Any] = []
        wake = loop.call_soon_threadsafe

        def counted(*args: Any) -> Any:
            calls.append(args)
            return wake(*args)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
        events.put(loop, partial(order.append, 0), False)
        await asyncio.sleep(0)
        for number in (1, 2):
            events.put(loop, partial(order.append, number), False)
        await asyncio.sleep(0.01)
        first = list(order)
        events.put(loop, partial(order.append, 3))
        await asyncio.sleep(0)
        urgent = list(order)
        events.put(loop, partial(order.append, 4), False)
        await asyncio.sleep(0.3)
        late = list(order)
        events.put(loop, partial(order.append, 5), False)  # the interval has ended
        await asyncio.sleep(0)
        return first, urgent, late, len(calls)

    first, urgent, late, calls = asyncio.run(run())
    assert first == [0]
    assert urgent == late == [0, 1, 2, 3]
    assert calls == 3
