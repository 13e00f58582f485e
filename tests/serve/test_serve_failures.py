"""Failures in a server: each request gets an answer, /health reports them, the rest continues."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from typing import Any

import httpx
import pytest

from serve.robots import WAIT, SlowPolicy, body_of, post, request, running, until
from sooner.serve.run import bind, build_server, url
from sooner.serve.server import stopping_is_no_failure
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
            thread = client.handler.thread
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
            assert "the server failed (RuntimeError)" in refused.json()["detail"]
            assert refused.headers["retry-after"]

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_not_even_an_exit_of_the_policy_ends_the_server(error: BaseException) -> None:
    slow = SlowPolicy()
    real = slow.act

    def leave(*arguments: Any, **options: Any) -> Any:
        slow.act = real  # type: ignore[method-assign]
        raise error

    async def scenario() -> None:
        async with running(slow) as client:
            slow.act = leave  # type: ignore[method-assign]
            assert (await ask(client)).status_code == 500
            assert (await ask(client, "2")).json() == [2.0] * 7

    asyncio.run(scenario())


def test_a_signal_before_uvicorn_listens_for_it_ends_the_server() -> None:
    settings = ServeSettings(port=0)
    with bind(settings) as listening:
        server = build_server(SlowPolicy(), settings)
        with stopping_is_no_failure(server):
            signal.raise_signal(signal.SIGTERM)
            server.run(sockets=[listening])  # or it would run for ever
    assert server.is_terminated


@pytest.mark.slow
def test_a_policy_that_hangs_does_not_keep_the_server_from_ending() -> None:
    slow = SlowPolicy()
    settings, ready = ServeSettings(port=0, grace_seconds=0.2), threading.Event()
    with bind(settings) as listening:
        server = build_server(slow, settings, ready.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        assert ready.wait(WAIT)
        slow.began.clear()
        slow.go.clear()
        answers: list[tuple[int, Any]] = []
        body = body_of(request(instruction="5"))
        client = threading.Thread(target=lambda: answers.append(post(url(listening), body)))
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
    assert answers[0][0] == 503
    assert "stopping" in answers[0][1]["detail"]


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
