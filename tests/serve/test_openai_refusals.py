"""What OpenAI's paths refuse, and what requests that fail are told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from serve.chatting import (
    CHAT,
    HELLO,
    ScriptedService,
    ask_sync,
    chunks,
    error_of,
    scripted,
    served,
    talking,
)
from serve.robots import until
from sooner.errors import SoonerError, UnsupportedError
from sooner.serve.refusal import BadRequestError, RefusedError

REFUSED: list[tuple[Any, str | None, str]] = [
    (b"", None, "the body is no JSON: it is empty"),
    (b"[1]", None, "the body is [1]; send an object"),
    ({}, "messages", "messages is missing"),
    ({"messages": "hello"}, "messages", "messages is 'hello'; send a list of objects such as {"),
    ({**HELLO, "temperature": "1"}, "temperature", "temperature is '1'; it should be a valid num"),
    ({**HELLO, "n": 0}, "n", "n is 0"),
    ({**HELLO, "max_tokens": 3000}, "messages", "the model takes 2048 tokens in all"),
    ({"messages": [{"role": "user", "content": "a" * 9000}]}, "messages", "the model takes"),
    ({**HELLO, "logit_bias": {"512": 1}}, "logit_bias", "logit_bias names token 512"),
    ({**HELLO, "top_logprobs": 2}, "top_logprobs", "top_logprobs goes with logprobs"),
    ({**HELLO, "functions": [{"name": "f"}]}, "functions", "functions is not supported"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
     "messages[0].content[0].text", "messages[0].content[0].text is 5"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "image": "a"}]}]},
     "messages[0].content[0].type",
     "messages[0].content[0].type is 'image'; it should be one of 'text', 'refusal', 'image_url'"),
    ({"messages": [{"role": "user", "content": [{"text": "a"}]}]},
     "messages[0].content[0].type", "messages[0].content[0].type is missing"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "a"}]}]},
     "messages[0].content[0].image_url",
     "messages[0].content[0].image_url is 'a'; send an object such as {"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "field", "text"), REFUSED)
def test_bad_requests_are_refused_with_their_field(body: Any, field: str | None, text: str) -> None:
    with scripted() as service:
        answer = ask_sync(service, body)
        assert not service.requests
    assert answer.status_code == 400
    error = error_of(answer)
    assert error["type"] == "invalid_request_error"
    assert error["param"] == field
    assert error["message"].startswith(text)
    is_long = "2048" in error["message"]
    assert error["code"] == ("context_length_exceeded" if is_long else None)


def test_prompts_that_can_not_be_prepared_are_refused() -> None:
    async def refuse(request: Any) -> Any:
        raise BadRequestError("messages[0].content[1].image_url.url", "that is no picture")

    async def break_down(request: Any) -> Any:
        raise RuntimeError("/secret/path")

    async def run(service: ScriptedService) -> None:
        async with talking(service, served(prepare=refuse)) as client:
            answer = await client.post(CHAT, json=HELLO)
            assert answer.status_code == 400
            assert error_of(answer)["param"] == "messages[0].content[1].image_url.url"
        async with talking(service, served(prepare=break_down)) as client:
            answer = await client.post(CHAT, json=HELLO)
            assert answer.status_code == 500  # a fault of ours, undocumented
            assert "secret" not in answer.text
            assert client.handler.num_in_flight == 0  # type: ignore[attr-defined]

    with scripted() as service:
        asyncio.run(run(service))


@pytest.mark.parametrize(
    ("state", "code"), [("warming", "warming_up"), ("draining", "draining"), ("failed", "failed")]
)
def test_a_server_that_is_not_ready_gives_the_reason(state: Any, code: str) -> None:
    async def run(service: ScriptedService) -> None:
        async with talking(service) as client:
            answer = await client.post(CHAT, json=HELLO)
            assert (answer.status_code, error_of(answer)["code"]) == (503, code)
            assert answer.headers["retry-after"]
            ready = await client.get("/ready")
            assert (ready.status_code, ready.json()) == (503, {"status": state})
            health = await client.get("/health")
            assert health.status_code == (503 if state == "failed" else 200)

    with scripted() as service:
        service.state = state
        asyncio.run(run(service))


FAILURES: list[tuple[Any, Exception | None, int, str | None]] = [
    ("error", RuntimeError("/secret"), 503, "engine_error"),
    ("error", UnsupportedError("no such thing"), 400, None),
    ("error", SoonerError("no"), 400, None),
    ("error", MemoryError(), 503, "out_of_memory"),
    ("error", RefusedError(503, "the server is stopping"), 503, None),
    ("deadline", None, 504, "deadline_exceeded"),
    ("cancelled", None, 503, "draining"),
]


@pytest.mark.parametrize(("reason", "error", "status", "code"), FAILURES)
def test_a_request_that_fails_has_a_status(
    reason: Any,
    error: Exception | None,
    status: int,
    code: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with scripted("the fox", blocks=[100]) as service:
        service.failure, service.failed_reason = error or RuntimeError(), reason
        answer = ask_sync(service, {**HELLO, "n": 2})
        assert answer.status_code == status
        assert error_of(answer)["code"] == code
        assert "secret" not in answer.text
        if status == 504 or code in ("engine_error", "out_of_memory"):
            assert answer.headers["x-should-retry"] == "false"
        assert not service.rows
    assert ("/secret" in caplog.text) == (code == "engine_error")  # whoever runs it has to know


def test_an_early_error_of_a_stream_has_its_status() -> None:
    class Failing(ScriptedService):
        def _round(self, request: Any) -> None:
            self._end(request, "deadline")

    service = Failing()
    answer = ask_sync(service, {**HELLO, "stream": True})
    assert (answer.status_code, error_of(answer)["code"]) == (504, "deadline_exceeded")
    service.end()


def test_a_full_server_refuses_before_it_reads() -> None:
    async def run(service: ScriptedService) -> None:
        settings = {"max_rows": 1, "max_queue": 1}
        async with talking(service, settings=settings) as client:
            first = [asyncio.ensure_future(client.post(CHAT, json=HELLO)) for _ in range(2)]
            await until(lambda: len(service.requests) == 2)
            answer = await client.post(CHAT, content=b"nonsense")
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
            service.go.set()
            assert [response.status_code for response in await asyncio.gather(*first)] == [200, 200]
            assert (await client.post(CHAT, json=HELLO)).status_code == 200
            assert client.handler.num_in_flight == 0  # type: ignore[attr-defined]

    with scripted() as service:
        service.go.clear()
        asyncio.run(run(service))


def test_a_late_error_is_told_in_the_stream() -> None:
    with scripted("the fox", blocks=[2]) as service:
        service.failure = RuntimeError("/secret")
        told = chunks(ask_sync(service, {**HELLO, "stream": True}))
    assert told[0]["choices"][0]["delta"]["role"] == "assistant"
    assert told[-1]["error"]["code"] == "engine_error"
    assert "secret" not in json.dumps(told)
