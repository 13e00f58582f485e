"""Asks an application in tests: a body to a path, and what the answer has."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx

from serve.chatting import talking

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


async def ask(service: Any, body: Any, path: str = CHAT, **options: Any) -> httpx.Response:
    headers = options.pop("headers", {})
    async with talking(service, **options) as client:
        if isinstance(body, bytes):
            return await client.post(path, content=body, headers=headers)
        return await client.post(path, json=body, headers=headers)


def ask_sync(service: Any, body: Any, path: str = CHAT, **options: Any) -> httpx.Response:
    return asyncio.run(ask(service, body, path, **options))


def chunks(answer: httpx.Response) -> list[Any]:
    """The data of a stream; `[DONE]` is seen to, and left out."""
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in answer.text.split("\n\n") if line and not line.startswith(":")]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def error_of(answer: httpx.Response) -> dict[str, Any]:
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert "\n" not in body["error"]["message"]
    return dict(body["error"])
