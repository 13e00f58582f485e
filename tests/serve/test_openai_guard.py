"""Who may ask: names and pages of this machine on the loopback, a token elsewhere."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from serve.asking import CHAT, error_of
from serve.chatting import HELLO, ScriptedService, scripted, talking
from sooner.serve.http import is_local

OPEN = {"host": "0.0.0.0", "token": "secret"}


def got(method: str, path: str, settings: Any = None, **headers: str) -> httpx.Response:
    async def run(service: ScriptedService) -> httpx.Response:
        async with talking(service, settings=settings or {}) as client:
            body = HELLO if method == "POST" else None
            return await client.request(method, path, json=body, headers=headers)

    with scripted() as service:
        answer = asyncio.run(run(service))
        assert bool(service.jobs) == (answer.status_code == 200 and method == "POST")
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
