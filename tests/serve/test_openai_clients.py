"""The `openai` package as a client: over the application, and over a socket with a real thread."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from serve.chatting import CHAT, HELLO, ScriptedService, handler_of, listening, scripted, served
from serve.robots import WAIT
from serve.spoken import RESPONSE_TEMPLATE, byte_level
from serve.stub_engine import StubEngine, solo_output
from serve.test_openai_tools import CALL, WEATHER
from sooner.serve.app import create_app
from sooner.serve.engine_thread import EngineThread

openai = pytest.importorskip("openai")
httpx2 = pytest.importorskip("httpx2")

WORDS = range(20, 110)
"""Ids of printable ASCII, so that every text of the stub is one."""
SCRIPT = "the quick 漢字 brown fox, naïve 🦊🦊 café STOP it"


def client_of(address: str, **options: Any) -> Any:
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, **options)


def ask(client: Any, text: str = "hello", **options: Any) -> Any:
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(model="tiny", messages=messages, **options)


@contextmanager
def stub_thread(kind: type[StubEngine] = StubEngine, **options: Any) -> Iterator[EngineThread]:
    """The real thread and scheduler around an engine without a model."""
    limit = options.pop("max_requests", 72)
    thread = EngineThread(
        lambda: kind(**{"words": WORDS, "blocks": (1, 3, 2), **options}),
        max_requests=limit,
    )
    thread.start()
    deadline = time.monotonic() + WAIT
    while thread.state == "warming" and time.monotonic() < deadline:
        time.sleep(0.002)
    try:
        yield thread
    finally:
        thread.close(0)


def test_the_client_over_the_application() -> None:
    async def run(service: ScriptedService) -> None:
        app = create_app(handler_of(service, served(response_template=RESPONSE_TEMPLATE)))
        transport = httpx2.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport) as inner,
            openai.AsyncOpenAI(
                base_url="http://localhost:8000/v1", api_key="none", http_client=inner
            ) as client,
        ):
            messages: Any = HELLO["messages"]
            whole = await client.chat.completions.create(
                model="tiny", messages=messages, stop="STOP", n=2, logprobs=True, top_logprobs=1,
                prediction={"type": "content", "content": "the quick"},
            )  # fmt: skip
            assert [choice.message.content for choice in whole.choices] == [
                "the quick 漢字 brown fox, naïve 🦊🦊 café"
            ] * 2
            assert whole.usage.completion_tokens_details.accepted_prediction_tokens > 0
            assert whole.choices[0].logprobs.content[0].top_logprobs
            assert whole.metrics["speculative_decoding"]["mode"] == "exact"
            stream = await client.chat.completions.create(
                model="tiny", messages=messages, stop="STOP", stream=True,
                stream_options={"include_usage": True},
            )  # fmt: skip
            chunks = [chunk async for chunk in stream]
            texts = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
            assert "".join(texts) == whole.choices[0].message.content
            assert chunks[-1].choices == []
            assert 2 * chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
            assert [card.id async for card in client.models.list()] == ["tiny", "org/tiny"]
            assert (await client.models.retrieve("org/tiny")).id == "org/tiny"
            service.script = CALL
            response = await client.chat.completions.create(
                model="tiny", messages=messages, tools=[WEATHER]
            )
            [call] = response.choices[0].message.tool_calls
            assert json.loads(call.function.arguments) == {"city": "Bern, 漢"}
            assert response.choices[0].finish_reason == "tool_calls"
            with pytest.raises(openai.BadRequestError) as refused:
                await client.chat.completions.create(model="tiny", messages=messages, temperature=7)
            assert refused.value.param == "temperature"
            with pytest.raises(openai.NotFoundError):
                await client.chat.completions.create(model="gpt", messages=messages)

    with scripted(SCRIPT) as service:
        asyncio.run(run(service))


@pytest.mark.slow
def test_many_clients_on_a_socket_get_what_each_gets_alone() -> None:
    """The whole path: uvicorn, the scheduler's thread, rows that are shared."""
    end = byte_level().eos_token_id
    with (
        stub_thread(max_rows=4) as thread,
        listening(thread) as address,
        client_of(address) as client,
    ):

        def alone(number: int) -> str:
            prompt = byte_level().apply_chat_template(
                [{"role": "user", "content": f"number {number}"}], add_generation_prompt=True
            )["input_ids"]
            tokens = solo_output(prompt, number, 40, [end], WORDS)
            return str(byte_level().decode(tokens, skip_special_tokens=True))

        def talk(number: int) -> str:
            options = {"seed": number, "max_tokens": 40}
            if number % 2:
                return str(ask(client, f"number {number}", **options).choices[0].message.content)
            chunks = ask(client, f"number {number}", stream=True, **options)
            return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

        with ThreadPoolExecutor(12) as pool:
            texts = list(pool.map(talk, range(24)))
        assert texts == [alone(number) for number in range(24)]
        assert len(set(texts)) == 24
        assert thread.load().running == thread.load().waiting == 0


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_frees_its_row(stream: bool) -> None:
    body = json.dumps({**HELLO, "stream": stream}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with scripted("and on " * 5000, blocks=[1]) as service, listening(service) as address:
        service.go.clear()
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=WAIT) as connection:
            connection.sendall(head.encode() + body)
            _until(lambda: bool(service.rows))
            if stream:
                service.go.set()
                assert connection.recv(1000).startswith(b"HTTP/1.1 200")
                service.go.clear()
            assert service.rows
        _until(lambda: not service.rows)


def http_status(address: str, path: str) -> int:
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=WAIT)
    connection.request("GET", path)
    return connection.getresponse().status


def _until(what: Any) -> None:
    deadline = time.monotonic() + WAIT
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_choices_with_a_seed_differ() -> None:
    with stub_thread() as thread, listening(thread) as address:
        told = ask(client_of(address), n=3, seed=4, max_tokens=20)
        assert len({one.message.content for one in told.choices}) == 3
        again = ask(client_of(address), n=3, seed=4, max_tokens=20)
        assert [one.message for one in again.choices] == [one.message for one in told.choices]
