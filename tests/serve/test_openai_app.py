"""The application around OpenAI's paths: models, health, pages, hang-ups."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from serve.asking import CHAT, ask_sync, error_of
from serve.chatting import HELLO, NAMES, ScriptedService, scripted, talking
from serve.robots import until


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


@pytest.mark.slow
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


def test_deadlines_come_from_header_body_and_settings() -> None:
    with scripted() as service:
        ask_sync(service, {**HELLO, "deadline_ms": 5000})
        ask_sync(service, {**HELLO, "deadline_ms": 5000}, headers={"X-Deadline-Ms": "70000"})
        ask_sync(service, HELLO, settings={"deadline": 9.0})
        left = [round(job.deadline - job.arrived) for job in service.jobs if job.deadline]
        assert left == [5, 70, 9]
        answer = ask_sync(service, HELLO, headers={"X-Deadline-Ms": "soon"})
        assert (answer.status_code, error_of(answer)["param"]) == (400, "deadline_ms")


def test_metrics_and_the_description() -> None:
    async def run(service: ScriptedService) -> None:
        async with talking(service) as client:
            assert (await client.get("/metrics")).text == "sooner:answers 0\n"
            assert "/openapi.json" in (await client.get("/docs")).text
            described = (await client.get("/openapi.json")).json()
            assert {"ChatRequest", "CompletionRequest"} <= set(described["components"]["schemas"])
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
