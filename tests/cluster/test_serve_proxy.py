"""The middleware of Ray Serve's proxy: what is asked again, cut, refused, and where it is sent."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

pytest.importorskip("ray.serve")

from sooner.ray.routing import NO_RETRY, SESSION, TRIES, ProxyMiddleware, key_of

CHAT = "/v1/chat/completions"
BODY = b'{"prompt": "' + b"a" * 2000 + b'"}'
JSON, EVENTS = (b"content-type", b"application/json"), (b"content-type", b"text/event-stream")


def head(status: int, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def part(content: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": content, "more_body": more}


class Proxy:
    """Ray's proxy by a script: of each request the messages that it sends before it returns.

    Attributes:
        requests: headers and bodies so far.
    """

    def __init__(self, *scripts: list[dict[str, Any]]) -> None:
        self.scripts = list(scripts)
        self.requests: list[tuple[dict[bytes, bytes], bytes]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        self.requests.append((dict(scope["headers"]), message["body"]))
        for message in self.scripts[min(len(self.requests), len(self.scripts)) - 1]:
            await send(message)


def post(proxy: Proxy, content: bytes = BODY, **headers: str) -> httpx.Response:
    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(ProxyMiddleware(proxy))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post(CHAT, content=content, headers=headers)

    return asyncio.run(run())


WHOLE = [head(200, JSON), part(b'{"a": 1}')]
FAILED = [head(503, JSON), part(b'{"error": "failed"}')]


def test_a_request_carries_its_key_and_is_passed_through() -> None:
    proxy = Proxy(WHOLE)
    answer = post(proxy)
    assert (answer.status_code, answer.content) == (200, b'{"a": 1}')
    [(headers, body)] = proxy.requests
    assert body == BODY
    assert headers[SESSION].decode() == key_of(BODY)
    named = Proxy(WHOLE)
    post(named, **{"X-Session-Id": "mine"})
    assert named.requests[0][0][SESSION] == b"mine"
    short = Proxy(WHOLE)
    post(short, b"{}")
    assert SESSION not in short.requests[0][0]


def test_a_request_that_has_not_begun_is_sent_again() -> None:
    proxy = Proxy([head(200, EVENTS)], FAILED, WHOLE)
    answer = post(proxy)
    assert (answer.status_code, answer.content) == (200, b'{"a": 1}')
    assert [body for _, body in proxy.requests] == [BODY] * 3


def test_what_kills_replicas_is_not_sent_for_ever() -> None:
    proxy = Proxy([])
    answer = post(proxy)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "replicas_lost")
    assert answer.headers["x-should-retry"] == "false"
    assert len(proxy.requests) == TRIES


def test_a_refusal_of_all_replicas_and_a_final_one_are_passed_on() -> None:
    everywhere = Proxy(FAILED)
    assert post(everywhere).content == b'{"error": "failed"}'
    assert len(everywhere.requests) == TRIES
    final = Proxy([head(503, JSON, NO_RETRY), part(b"final")])
    assert post(final).content == b"final"
    assert len(final.requests) == 1


def test_a_stream_that_has_begun_ends_with_an_error() -> None:
    proxy = Proxy([head(200, EVENTS), part(b"data: 1\n\n", True)])
    events = post(proxy).text.split("\n\n")
    assert events[0] == "data: 1"
    assert json.loads(events[1].removeprefix("data: "))["error"]["code"] == "replica_lost"
    assert events[2:] == [""]
    assert len(proxy.requests) == 1


def test_without_an_application_the_server_is_stopping() -> None:
    gone = Proxy([head(404, (b"content-type", b"text/plain")), part(b"no path")])
    answer = post(gone)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "draining")
    ours = Proxy([head(404, JSON), part(b'{"error": "no path"}')])
    assert post(ours).status_code == 404


def test_a_client_that_leaves_is_not_answered_by_another_replica() -> None:
    async def run() -> None:
        sent: list[Any] = []
        coming = iter([part(b"{}"), {"type": "http.disconnect"}])

        async def receive() -> Any:
            return next(coming)

        async def send(message: Any) -> None:
            sent.append(message)

        async def proxy(scope: Any, receive: Any, send: Any) -> None:
            assert (await receive())["body"] == b"{}"
            assert (await receive())["type"] == "http.disconnect"

        scope = {"type": "http", "method": "POST", "path": CHAT, "headers": []}
        await ProxyMiddleware(proxy)(scope, receive, send)
        assert sent == []

    asyncio.run(run())
