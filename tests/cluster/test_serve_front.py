"""The front over replicas that do as they are told: what is asked again, cut, refused, ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest

pytest.importorskip("prometheus_client")

from sooner.ray.exchange import Ack, Head, PassedRequest
from sooner.ray.front import TRIES, Front, ReplicaLostError
from sooner.ray.replica import ReplicaReport
from sooner.serve.settings import ChatSettings

CHAT = "/v1/chat/completions"
JSON = [(b"content-type", b"application/json")]
EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8")]
FULL = b'{"error": {"message": "failed", "type": "x", "param": null, "code": null}}'


class Scripted:
    """Replicas by turns, each with a script: heads, bytes, errors to raise, events to wait for.

    Attributes:
        requests: all so far.
        closed: how many answers were taken to their end or given up.
    """

    def __init__(self, *scripts: list[Any], well: int = 1) -> None:
        self.scripts, self.well = list(scripts), well
        self.requests: list[PassedRequest] = []
        self.closed = 0

    async def ask(self, request: PassedRequest) -> AsyncGenerator[Any, None]:
        self.requests.append(request)
        script = self.scripts[min(len(self.requests), len(self.scripts)) - 1]
        try:
            for step in script:
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, asyncio.Event):
                    await step.wait()
                else:
                    yield step
        finally:
            self.closed += 1

    async def reports(self, metrics: bool = False) -> list[ReplicaReport]:
        text = b"# HELP sooner:tokens_total Tokens.\n# TYPE sooner:tokens_total counter\n"
        return [
            ReplicaReport(f"r{at}", "ok", 0.5, at, 0, text + b'sooner:tokens_total{m="x"} 3.0\n')
            for at in range(self.well)
        ]


def whole(name: str, content: bytes = b'{"a": 1}', status: int = 200) -> list[Any]:
    return [Ack(name), Head(status, JSON), content]


def lost(*before: Any) -> list[Any]:
    return [*before, ReplicaLostError("it died")]


def front(replicas: Scripted, **settings: Any) -> Front:
    return Front(replicas, ChatSettings(port=0, max_rows=1, max_queue=1, **settings), 1)


async def post(served: Front, content: bytes = b"{}", **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(served.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.post(CHAT, content=content, headers=headers)


async def get(served: Front, path: str) -> httpx.Response:
    transport = httpx.ASGITransport(served.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.get(path)


def test_bytes_are_passed_through() -> None:
    replicas = Scripted(whole("a", b'{"b":\n 2}', 418))
    content = b'{"messages": [{"role": "user", "content": "h\\u00e9"}]}'
    answer = asyncio.run(
        post(front(replicas, token="secret"), content, authorization="Bearer secret")
    )
    assert (answer.status_code, answer.content) == (418, b'{"b":\n 2}')
    assert answer.headers["x-sooner-replica"] == "a"
    (request,) = replicas.requests
    assert request.body == content
    assert (request.method, request.path) == ("POST", CHAT)
    headers = dict(request.headers)
    assert headers[b"x-request-id"].decode() == answer.headers["x-request-id"]
    assert b"authorization" not in headers
    assert b"secret" not in repr(request).encode()


def test_without_the_token_no_replica_is_called() -> None:
    replicas = Scripted(whole("a"))
    assert asyncio.run(post(front(replicas, token="secret"))).status_code == 401
    assert not replicas.requests


def test_a_request_that_has_not_begun_is_sent_again() -> None:
    replicas = Scripted(
        lost(),
        lost(Ack("a"), Head(200, JSON), b'{"half'),
        whole("b"),
    )
    served = front(replicas)
    answer = asyncio.run(post(served))
    assert (answer.status_code, answer.content) == (200, b'{"a": 1}')
    assert [request.avoid for request in replicas.requests] == [set(), {""}, {"", "a"}]
    assert replicas.closed == 3
    assert served.under_way == 0
    assert b"sooner:requests_retried_total 2.0" in served.metrics.text([])


def test_what_kills_replicas_is_not_sent_for_ever() -> None:
    replicas = Scripted(lost(Ack("a")))
    answer = asyncio.run(post(front(replicas)))
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "replicas_lost"
    assert answer.headers["x-should-retry"] == "false"
    assert len(replicas.requests) == TRIES


def test_a_stream_that_has_begun_ends_with_an_error() -> None:
    replicas = Scripted(lost(Ack("a"), Head(200, EVENTS), b"data: 1\n\n"))
    served = front(replicas)
    events = asyncio.run(post(served)).text.split("\n\n")
    assert events[0] == "data: 1"
    assert json.loads(events[1].removeprefix("data: "))["error"]["code"] == "replica_lost"
    assert events[2:] == [""]
    assert len(replicas.requests) == 1
    assert served.under_way == 0


def test_a_failed_engine_is_passed_over_and_a_full_answer_is_not() -> None:
    failed = whole("a", FULL, 503)
    assert asyncio.run(post(front(Scripted(failed, whole("b"))))).status_code == 200
    final = [Ack("a"), Head(503, [*JSON, (b"x-should-retry", b"false")]), FULL]
    replicas = Scripted(final, whole("b"))
    assert asyncio.run(post(front(replicas))).status_code == 503
    assert len(replicas.requests) == 1
    everywhere = Scripted(failed)
    answer = asyncio.run(post(front(everywhere)))
    assert (answer.status_code, answer.content) == (503, FULL)


@pytest.mark.parametrize("before", [[], [Head(200, EVENTS), b"data: 1\n\n"]])
def test_a_client_that_leaves_is_reported_to_the_replica(before: list[Any]) -> None:
    async def run() -> None:
        replicas = Scripted([Ack("a"), *before, asyncio.Event()])
        served = front(replicas)
        sent: list[Any] = []
        leaving = asyncio.Event()
        coming = iter([{"type": "http.request", "body": b"{}", "more_body": False}])

        async def receive() -> Any:
            if (message := next(coming, None)) is not None:
                return message
            await leaving.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"localhost")]
        scope = {"type": "http", "method": "POST", "path": CHAT, "headers": headers,
                 "query_string": b"", "raw_path": CHAT.encode()}  # fmt: skip
        work = asyncio.ensure_future(served.app(scope, receive, send))
        await asyncio.sleep(0.1)
        assert served.under_way == 1
        leaving.set()
        await asyncio.wait_for(work, 5)
        assert replicas.closed == 1
        assert served.under_way == 0

    asyncio.run(run())


def test_draining_lets_answers_end_and_takes_none() -> None:
    async def run() -> None:
        going, counts = asyncio.Event(), []
        replicas = Scripted([Ack("a"), Head(200, EVENTS), b"data: 1\n\n", going, b"data: 2\n\n"])
        served = front(replicas)
        served.on_close = counts.append
        stream = asyncio.ensure_future(post(served))
        await asyncio.sleep(0.1)
        closing = asyncio.ensure_future(served.close())
        await asyncio.sleep(0.1)
        refused = await post(served)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "draining"
        assert (await get(served, "/ready")).json() == {"status": "draining"}
        assert counts == [1]
        assert not closing.done()
        going.set()
        assert (await stream).text == "data: 1\n\ndata: 2\n\n"
        await asyncio.wait_for(closing, 5)

    asyncio.run(run())


def test_health_and_readiness_are_the_replicas() -> None:
    served = front(Scripted(well=2))
    assert asyncio.run(get(served, "/ready")).json() == {"status": "ready"}
    response = asyncio.run(get(served, "/health"))
    assert response.status_code == 200
    assert [report["replica"] for report in response.json()["replicas"]] == ["r0", "r1"]
    nobody = front(Scripted(well=0))
    assert asyncio.run(get(nobody, "/ready")).status_code == 503
    assert asyncio.run(get(nobody, "/health")).status_code == 503


def test_more_than_all_replicas_hold_come_back_later() -> None:
    async def run() -> list[int]:
        going = asyncio.Event()
        served = front(Scripted([going, *whole("a")]))
        coming = [asyncio.ensure_future(post(served)) for _ in range(2)]
        await asyncio.sleep(0.1)
        refused = await post(served)
        assert refused.headers["retry-after"]
        going.set()
        return [refused.status_code, *(one.status_code for one in await asyncio.gather(*coming))]

    assert asyncio.run(run()) == [429, 200, 200]


def test_metrics_of_replicas_are_told_apart() -> None:
    text = asyncio.run(get(front(Scripted(well=2)), "/metrics")).text
    assert text.count("# TYPE sooner:tokens_total counter") == 1
    assert 'sooner:tokens_total{m="x",replica="r0"} 3.0' in text
    assert 'sooner:tokens_total{m="x",replica="r1"} 3.0' in text
    assert 'sooner:replicas{status="ok"} 2.0' in text
