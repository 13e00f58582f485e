"""Keys of requests, who writes them, and which replica they go to."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

pytest.importorskip("ray.serve")

from sooner.ray.routing import PREFIX, key_of, middlewares, rank

CLIP = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}
OTHER = {"type": "image_url", "image_url": {"url": "data:image/png;base64,BBBB", "detail": "low"}}
NAMES = [f"replica-{number}" for number in range(8)]


def chat(*contents: Any, role: str = "user", **more: Any) -> bytes:
    messages = [{"role": role, "content": content} for content in contents]
    return json.dumps({"messages": messages, **more}).encode()


def text(content: str) -> dict[str, str]:
    return {"type": "text", "text": content}


def test_a_clip_has_a_single_key_whatever_the_question() -> None:
    first = key_of(chat([CLIP, text("what happens?")]))
    assert first is not None
    assert first == key_of(chat([text("And why?"), CLIP], stream=True))
    assert first == key_of(chat("be brief", [CLIP, text("what happens?")]))
    assert first == key_of(chat([CLIP], "it rains", [OTHER, text("and here?")]))
    calls = b'{"messages": [{"role": "assistant", "tool_calls": []}, '  # without a content
    assert first == key_of(chat([CLIP]).replace(b'{"messages": [', calls))
    assert first != key_of(chat([OTHER]))
    assert first != key_of(chat([CLIP, OTHER]))


def test_texts_share_their_beginning() -> None:
    system = "You are careful. " * 100
    assert key_of(chat(system, "one")) == key_of(chat(system, "two")) is not None
    assert key_of(chat("x" + system, "one")) != key_of(chat(system, "one"))
    assert key_of(chat("hello")) is None
    assert key_of(chat("a" * (PREFIX // 2))) is None


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"messages": 3}',
        b'{"messages": [3, null, {"content": [4, {"type": "image_url", "image_url": 5}]}]}',
        b'{"messages": [{"content": {"a": 1}}]}', b'{"prompt": [1, 2]}',
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused_elsewhere(body: bytes) -> None:
    key_of(body)


def home_of(key: str, names: list[str]) -> str:
    return rank(key, dict.fromkeys(names, 0), 4)[0]


def test_only_the_keys_of_a_lost_replica_move() -> None:
    keys = [str(number) for number in range(400)]
    before = {key: home_of(key, NAMES) for key in keys}
    after = {key: home_of(key, NAMES[1:]) for key in keys}
    assert all(after[key] == home for key, home in before.items() if home != NAMES[0])
    share = [sum(home == name for home in before.values()) for name in NAMES]
    assert min(share) > 20, share


def test_a_busy_home_yields_and_stays_ranked() -> None:
    home = home_of("clip", NAMES[:3])
    idle = dict.fromkeys(NAMES[:3], 1)
    assert rank("clip", {**idle, home: 4}, 4)[0] == home
    assert rank("clip", {**idle, home: 5}, 4)[0] != home
    assert sorted(rank("clip", {**idle, home: 5}, 4)) == sorted(NAMES[:3])
    assert rank("", {**idle, home: 0}, 4)[0] == home  # the least busy one, without a key
    assert rank("clip", {}, 4) == []


def test_a_request_is_passed_on_with_its_key_unless_the_client_names_a_session() -> None:
    async def echo(request: Request) -> JSONResponse:
        size = len(await request.body())
        return JSONResponse([size, request.headers.get("x-session-id")])

    async def post(content: bytes, **headers: str) -> Any:
        app = Starlette(routes=[Route("/", echo, methods=["POST"])], middleware=middlewares())
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return (await client.post("/", content=content, headers=headers)).json()

    body = chat("a" * 2000)
    assert asyncio.run(post(body)) == [len(body), key_of(body)]
    assert asyncio.run(post(body, **{"X-Session-Id": "mine"})) == [len(body), "mine"]
    assert asyncio.run(post(b"{}")) == [2, None]
