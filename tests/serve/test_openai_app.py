"""The application around OpenAI's paths: models, health, pages, hang-ups."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from serve.asking import CHAT, error_of
from serve.chatting import HELLO, NAMES, ScriptedService, scripted, talking
from serve.robots import until


def test_models_are_listed() -> None:
    async def run(service: ScriptedService) -> None:
        async with talking(service) as client:
            told = (await client.get("/v1/models")).json()
            assert [card["id"] for card in told["data"]] == list(NAMES)
            assert told["data"][0] == {
                "id": "tiny", "object": "model", "created": 1_700_000_000, "owned_by": "sooner",
                "max_model_len": 2048, "method": "plain", "mode": "exact",
            }  # fmt: skip
            assert (await client.get("/v1/models/org/tiny")).json()["id"] == "org/tiny"
            answer = await client.get("/v1/models/other")
            assert (answer.status_code, error_of(answer)["code"]) == (404, "model_not_found")

    with scripted() as service:
        asyncio.run(run(service))


def test_health_fails_when_the_loop_stands_still() -> None:
    async def run(service: ScriptedService) -> None:
        now = service.ticked
        async with talking(service, clock=lambda: now + 29) as client:
            answer = await client.get("/health")
            assert answer.status_code == 200
            assert answer.json() == {
                "status": "ok", "seconds_since_tick": 29.0, "running": 0, "waiting": 0,
            }  # fmt: skip
            assert (await client.get("/ready")).json() == {"status": "ready"}
        async with talking(service, clock=lambda: now + 31) as client:
            answer = await client.get("/health")
            assert (answer.status_code, answer.json()["status"]) == (503, "stalled")

    with scripted() as service:
        asyncio.run(run(service))


def test_silence_is_filled_with_pings() -> None:
    async def run(service: ScriptedService) -> str:
        async with talking(service, settings={"ping_seconds": 0.02}) as client:
            asking = asyncio.ensure_future(client.post(CHAT, json={**HELLO, "stream": True}))
            await until(lambda: service.jobs)
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


def test_metrics_and_pages_need_nothing_from_elsewhere() -> None:
    async def run(service: ScriptedService) -> None:
        async with talking(service) as client:
            assert (await client.get("/metrics")).text == "sooner:answers 0\n"
            page = await client.get("/docs")
            assert "default-src 'none'" in page.headers["content-security-policy"]
            assert "<script" not in page.text
            assert "http" not in page.text.replace("http-equiv", "")
            assert "POST /v1/chat/completions" in page.text
            described = (await client.get("/openapi.json")).json()
            assert {"ChatRequest", "ChatCompletion"} <= set(described["components"]["schemas"])
            refs = set(_refs(described))
            known = {f"#/components/schemas/{name}" for name in described["components"]["schemas"]}
            assert refs <= known

    with scripted() as service:
        asyncio.run(run(service))


def _refs(told: Any) -> Any:
    if isinstance(told, dict):
        for key, value in told.items():
            if key == "$ref":
                yield value
            yield from _refs(value)
    elif isinstance(told, list):
        for one in told:
            yield from _refs(one)


def test_hanging_up_frees_the_row() -> None:
    async def run(service: ScriptedService) -> None:
        from serve.chatting import handler_of
        from sooner.serve.openai.app import create_app

        handler = handler_of(service)
        app = create_app(handler)
        for stream in (False, True):
            gone = asyncio.Event()
            body = json.dumps({**HELLO, "n": 2, "stream": stream}).encode()
            messages = iter([{"type": "http.request", "body": body, "more_body": False}])

            async def receive(messages: Any = messages, gone: Any = gone) -> Any:
                for message in messages:
                    return message
                await gone.wait()
                return {"type": "http.disconnect"}

            sent: list[Any] = []

            async def send(message: Any, sent: Any = sent) -> None:
                sent.append(message)

            scope = {
                "type": "http", "method": "POST", "path": CHAT, "raw_path": CHAT.encode(),
                "query_string": b"", "headers": [(b"host", b"localhost")], "root_path": "",
                "scheme": "http", "http_version": "1.1", "client": None, "server": None,
            }  # fmt: skip
            service.jobs.clear()
            task = asyncio.ensure_future(app(scope, receive, send))
            await until(lambda: len(service.jobs) == 2)
            if stream:
                service.go.set()
                await until(lambda sent=sent: len(sent) > 4)
                service.go.clear()
            assert len(service.rows) == 2
            gone.set()
            await task
            assert not service.rows
            assert handler.under_way == 0
            assert handler.bodies.held == 0
        assert handler.metrics.statuses == [499, 200]  # type: ignore[attr-defined]
        await handler.close()

    with scripted("and on " * 2000, blocks=[1]) as service:
        service.go.clear()
        asyncio.run(run(service))
