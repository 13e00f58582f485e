"""Failures in a server: each request gets an answer, /health reports them, the rest continues."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from contextlib import suppress
from typing import Any

import httpx
import pytest

from serve.robots import WAIT, SlowPolicy, body_of, post, request, running, until
from sooner.serve.act import build_server
from sooner.serve.settings import ServeSettings

SOON = 30
"""Seconds within which what must not hang has to end."""


async def ask(client: Any, instruction: str = "1", **headers: str) -> httpx.Response:
    async with asyncio.timeout(SOON):
        body = request(instruction=instruction)
        return await client.post("/act", json=body, headers=headers)


async def health(client: Any) -> tuple[int, dict[str, Any]]:
    answer = await client.get("/health")
    return answer.status_code, answer.json()


def test_a_policy_that_is_broken_for_good_is_distinguished_from_a_bad_request() -> None:
    slow = SlowPolicy()

    def dead(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError("out of sorts")

    async def scenario() -> None:
        async with running(slow) as client:
            thread = client.handler.service
            assert (await ask(client, "break")).status_code == 500  # it alone
            assert (await ask(client, "1")).json() == [1.0] * 7
            assert (await health(client))[0] == 200
            slow.act = dead  # type: ignore[method-assign]
            assert (await ask(client)).status_code == 500
            await until(lambda: thread.state == "failed", SOON)
            status, report = await health(client)
            assert (status, report["status"], report["fault"]) == (503, "failed", "RuntimeError")
            refused = await ask(client)
            assert refused.status_code == 503
            assert "the server failed (RuntimeError)" in refused.json()["error"]["message"]
            assert refused.headers["retry-after"]

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_an_exit_of_the_policy_is_a_failure_that_is_told(error: BaseException) -> None:
    slow = SlowPolicy()

    def leave(*arguments: Any, **options: Any) -> Any:
        raise error

    async def scenario() -> None:
        async with running(slow) as client:
            slow.act = leave  # type: ignore[method-assign]
            assert (await ask(client)).status_code == 503
            await until(lambda: client.handler.service.state == "failed", SOON)

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_policy_that_hangs_does_not_keep_the_server_from_ending() -> None:
    slow = SlowPolicy()
    server = build_server(slow, ServeSettings(port=0, grace_seconds=0.2))
    addresses: queue.SimpleQueue[str] = queue.SimpleQueue()
    thread = threading.Thread(target=server.listen, args=[addresses.put])
    thread.start()
    address = addresses.get(timeout=WAIT)
    slow.began.clear()
    slow.go.clear()
    body = body_of(request(instruction="5"))

    def ask() -> None:
        with suppress(OSError, ValueError):  # it is cut off
            post(address, body)

    client = threading.Thread(target=ask)
    client.start()
    assert slow.began.wait(WAIT)
    server.should_exit = True
    # `go` is not set: the policy's call never ends.
    thread.join(15)
    is_stuck = thread.is_alive()
    slow.go.set()
    thread.join(WAIT)
    client.join(WAIT)
    assert not is_stuck


def test_requests_have_ids_in_answers_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with running(SlowPolicy()) as client:
            one, two = await ask(client), await client.get("/health")
            assert len({one.headers["x-request-id"], two.headers["x-request-id"]}) == 2
            mine = await ask(client, "break", **{"X-Request-Id": "robot-7.42"})
            assert mine.headers["x-request-id"] == "robot-7.42"
            forged = await ask(client, **{"X-Request-Id": "a b"})
            assert forged.headers["x-request-id"] != "a b"
            assert (await client.get("/nowhere")).headers["x-request-id"]

    with caplog.at_level(logging.INFO, "sooner.serve"):
        asyncio.run(scenario())
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("robot-7.42 POST /act 500 ") for line in lines)
    assert "robot-7.42 failed" in lines
