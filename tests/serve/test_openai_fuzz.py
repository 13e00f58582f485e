"""Requests by the thousand, by the server's own description and nearly right ones of our own.

Every answer has a documented status and type, and no fault of the server stands behind it. A few
hundred by default; `make soak` runs more than 10,000, in parts of minutes
that may run beside each other.
"""

from __future__ import annotations

import http.client
import json
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as some

from serve.chatting import CHAT, HELLO, VOCAB, listening, served
from serve.spoken import RESPONSE_TEMPLATE, byte_level
from serve.stub_engine import StubEngine
from serve.test_openai_clients import http_status, stub_thread
from sooner import PromptLookup
from sooner.serve.openai.grammar import GuidanceGrammars

SOON = 60
DOCUMENTED = {200, 400, 401, 403, 404, 405, 408, 413, 429, 503, 504}
EXPECTED = DOCUMENTED - {503}
"""Statuses of a server that is ready."""

values = some.recursive(
    some.one_of(
        some.none(), some.booleans(), some.integers(), some.floats(), some.text(max_size=9),
        some.sampled_from([10**400, -1, 0, 1, 2**63, "a" * 2000, "漢", "\x00", "auto", [[]]]),
    ),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=9), inner),
    max_leaves=8,
)  # fmt: skip
parts = some.one_of(
    values,
    some.fixed_dictionaries({"type": some.just("text"), "text": some.text(max_size=30) | values}),
    some.fixed_dictionaries({"type": some.sampled_from(["image_url", "video_url", "file", "x"])}),
)
messages = some.lists(
    some.fixed_dictionaries(
        {
            "role": some.sampled_from(["user", "assistant", "system", "tool", "other"]),
            "content": some.text(max_size=30) | some.lists(parts, max_size=3) | values,
        }
    ),
    max_size=3,
)
numbers = some.one_of(some.integers(-2, 40), some.floats(-3, 3), values)
tools = some.lists(
    some.fixed_dictionaries(
        {
            "type": some.just("function"),
            "function": some.fixed_dictionaries(
                {"name": some.sampled_from(["a", "b"])}, optional={"parameters": values}
            ),
        }
    ),
    max_size=2,
)
formats = some.fixed_dictionaries(
    {"type": some.sampled_from(["text", "json_object", "json_schema"])},
    optional={
        "json_schema": some.fixed_dictionaries(
            {"schema": some.one_of(values, some.sampled_from([{"type": "object"}, {"enum": [1]}]))}
        )
    },
)
chat = {
    "n": some.integers(0, 4) | values, "stop": some.text(max_size=3) | values,
    "seed": some.integers(-5, 5) | values, "temperature": numbers, "top_p": numbers,
    "top_k": numbers, "min_p": numbers, "presence_penalty": numbers, "frequency_penalty": numbers,
    "repetition_penalty": numbers, "stream": some.booleans(), "stream_options": values,
    "logit_bias": some.dictionaries(some.sampled_from(["1", "600", "x"]), numbers, max_size=2),
    "prediction": some.fixed_dictionaries({"type": some.just("content"), "content": values}),
    "response_format": formats, "return_token_origins": some.booleans() | values,
    "stop_token_ids": some.lists(some.integers(-1, 600), max_size=3), "ignore_eos": some.booleans(),
    "model": some.sampled_from(["tiny", "other"]) | values, "user": values,
    "messages": messages, "tools": tools,
    "tool_choice": some.sampled_from(["auto", "none", "required"]) | values,
    "logprobs": some.booleans() | values, "top_logprobs": numbers,
    "chat_template_kwargs": values, "modalities": values,
}  # fmt: skip


def changed(right: dict[str, Any], fields: dict[str, Any]) -> Any:
    """A right request with up to four fields that may be wrong."""
    names = some.lists(some.sampled_from(sorted(fields)), max_size=4, unique=True)
    wrong = names.flatmap(
        lambda chosen: some.fixed_dictionaries({name: fields[name] for name in chosen})
    )
    limits = some.integers(0, 30)
    return some.builds(
        lambda chosen, limit: {**right, "max_tokens": limit, **chosen}, wrong, limits
    )


chats = changed(HELLO, chat)
damaged = some.builds(
    lambda report, at, what: (lambda raw: raw[: at % len(raw)] + what + raw[at % len(raw) :])(
        json.dumps(report).encode()
    ),
    chats, some.integers(0, 10_000), some.binary(min_size=1, max_size=9),
)  # fmt: skip
asks = some.one_of(
    some.tuples(some.just(CHAT), chats.map(lambda report: json.dumps(report).encode())),
    some.tuples(some.just(CHAT), damaged),
    some.tuples(some.just(CHAT), some.binary(max_size=100)),
)


class CompiledOnly(GuidanceGrammars):
    """Compiles schemas as asked; the stub, which knows no grammar, is not held to them."""

    async def of(self, request: Any) -> Any:
        await super().of(request)
        return lambda width: None


class Forgetful(StubEngine):
    """Keeps no list of all that it has ever answered."""

    def add(self, request: Any) -> None:
        self.admitted.clear()
        super().add(request)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server of a stub engine behind the real scheduler; it lives through all of this."""
    tokenizer = byte_level()
    grammars = CompiledOnly(tokenizer, VOCAB, [tokenizer.eos_token_id])
    model = served(
        response_template=RESPONSE_TEMPLATE,
        default_max_tokens=20,
        method=PromptLookup(),
    )
    with (
        stub_thread(Forgetful, max_rows=8) as thread,
        listening(thread, model, grammars=grammars, settings={"max_body": 1 << 20}) as where,
    ):
        yield where


def check(status: int, raw: bytes, kind: str) -> None:
    """One answer of our own requests."""
    assert status in EXPECTED, (status, raw[:500])
    if kind.startswith("text/event-stream"):
        assert status == 200
        assert raw.endswith(b"data: [DONE]\n\n")
        frames = raw.decode().split("\n\n")[:-2]
        assert all(frame == ": ping" or frame.startswith("data: {") for frame in frames)
        assert not any(frame.startswith('data: {"error"') for frame in frames), raw[-500:]
        return
    body = json.loads(raw)
    if status == 200:
        assert body["choices"]
        return
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    assert "\n" not in body["error"]["message"]
    assert len(raw) < 3000


def fuzz_bodies(address: str, count: int, number: int = 0) -> Counter[int]:
    """`count` nearly right requests; each `number` draws others."""
    host = address.removeprefix("http://")
    connections = [http.client.HTTPConnection(host, timeout=SOON)]
    statuses: Counter[int] = Counter()

    @settings(
        max_examples=count, deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @seed(number)
    @given(asks)
    def send(case: tuple[str, bytes]) -> None:
        path, body = case
        try:
            connections[0].request("POST", path, body)
            answer = connections[0].getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            connections[0] = http.client.HTTPConnection(host, timeout=SOON)  # idle for too long
            connections[0].request("POST", path, body)
            answer = connections[0].getresponse()
        raw = answer.read()
        statuses[answer.status] += 1
        check(answer.status, raw, answer.headers["Content-Type"])

    send()
    return statuses


def fuzz_schema(
    address: str, count: int, path: str | None = None, mode: str | None = None
) -> Counter[int]:
    """`count` requests of schemathesis' making, each answer held to the description.

    Args:
        path: of these requests alone, shared evenly by its operations; by default all paths.
        mode: `positive` keeps to the description, `negative` breaks it; of POST alone, where it is
            half of each by default.
    """
    import schemathesis
    from schemathesis import GenerationMode
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        status_code_conformance,
    )

    checks = content_type_conformance, status_code_conformance
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    if path is not None:
        schema = schema.include(path=path)
    statuses: Counter[int] = Counter()
    works: list[tuple[Any, dict[str, Any]]] = []
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.method.upper() == "POST":
            modes = [GenerationMode(mode)] if mode else list(GenerationMode)
            works += [(operation, {"generation_mode": generation}) for generation in modes]
        else:
            works.append((operation, {}))
    for operation, chosen in works:

        @settings(
            max_examples=max(count // len(works), 1), deadline=None,
            database=None, derandomize=True, suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(operation.as_strategy(**chosen))
        def send(case: Any) -> None:
            answer = case.call(timeout=SOON)
            statuses[answer.status_code] += 1
            assert answer.status_code in EXPECTED, answer.text[:500]
            case.validate_response(answer, checks=checks)

        send()
    return statuses


def lives(address: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is left of all those requests, and nothing was logged as a fault."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=SOON)
    connection.request("GET", "/health")
    health = json.loads(connection.getresponse().read())
    assert (health["status"], health["running"], health["waiting"]) == ("ok", 0, 0)
    assert http_status(address, "/ready") == 200
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def test_nearly_right_requests(address: str, caplog: pytest.LogCaptureFixture) -> None:
    statuses = fuzz_bodies(address, 400)
    assert statuses[200] > 20
    assert statuses[400] > 50
    lives(address, caplog)


@pytest.mark.slow
def test_requests_by_the_description(address: str, caplog: pytest.LogCaptureFixture) -> None:
    statuses = fuzz_schema(address, 640)
    assert sum(statuses.values()) > 100
    lives(address, caplog)


TELLING = ("/v1/models", "/v1/models/{model}", "/health", "/ready", "/metrics")


@pytest.mark.soak
@pytest.mark.parametrize(
    ("path", "mode", "count"),
    [
        *((CHAT, mode, 1250) for mode in ("positive", "negative")),
        *((path, None, 200) for path in TELLING),
    ],
)
def test_thousands_by_the_description(
    address: str, caplog: pytest.LogCaptureFixture, path: str, mode: str | None, count: int
) -> None:
    statuses = fuzz_schema(address, count, path, mode)
    assert sum(statuses.values()) >= (count if path == CHAT or "{" in path else 1)
    print(path, mode, dict(sorted(statuses.items())))
    lives(address, caplog)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(4))
def test_thousands_of_nearly_right_requests(
    address: str, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    statuses = fuzz_bodies(address, 1250, number)
    assert sum(statuses.values()) >= 1250
    print("bodies", number, dict(sorted(statuses.items())))
    lives(address, caplog)
