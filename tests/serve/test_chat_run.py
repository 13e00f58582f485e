"""A whole server over a tiny model: OpenAI's own client, hang-ups, draining, a lost engine."""

from __future__ import annotations

import copy
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

import tiny
from serve.robots import WAIT
from serve.spoken import byte_level
from sooner.engine.scheduler import Engine
from sooner.errors import SoonerError
from sooner.serve.model import ChatServer
from sooner.serve.settings import ChatSettings
from sooner.tasks.loading import Loaded, ModelPair

openai = pytest.importorskip("openai")

VOCAB = 512
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
HELLO = [{"role": "user", "content": "hello"}]


@dataclass
class Running:
    """A server that runs, and what it raised in the end."""

    server: ChatServer
    address: str
    errors: list[Exception]

    @property
    def client(self) -> Any:
        return openai.OpenAI(base_url=f"{self.address}/v1", api_key="none", max_retries=0)

    def chat(self, text: str = "hello", **more: Any) -> Any:
        options = {"max_tokens": 24, "temperature": 0.0, **more}
        messages = [{"role": "user", "content": text}]
        return self.client.chat.completions.create(model="tiny", messages=messages, **options)


def pair(draft: bool = False, template: str | None = TEMPLATE) -> ModelPair:
    tokenizer = copy.copy(byte_level())  # which other tests share
    tokenizer.chat_template = template
    target = Loaded("org/tiny", tiny.model("qwen2", vocab=VOCAB), tokenizer, True)
    other = Loaded("org/tinier", tiny.model("qwen2", seed=1, vocab=VOCAB), tokenizer, True)
    return ModelPair(target, other if draft else None)


@contextmanager
def running(models: ModelPair | None = None, **settings: Any) -> Iterator[Running]:
    chat_settings = ChatSettings(port=0, served_model_name="tiny", media_workers=1, **settings)
    server = ChatServer(models or pair(), "org/tiny", chat_settings)
    addresses: list[str] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            server.run(addresses.append)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_for(lambda: addresses or not thread.is_alive())
        yield Running(server, addresses[0], errors)
    finally:
        server.server.should_exit = True
        thread.join(WAIT)
        assert not thread.is_alive()


def wait_for(is_so: Any, seconds: float = WAIT) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def streamed(stream: Any) -> tuple[str, Any, str | None]:
    """Text, usage and finish reason of a stream."""
    text, usage, reason = "", None, None
    for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
        usage = chunk.usage or usage
    return text, usage, reason


@pytest.fixture(scope="module")
def plain() -> Iterator[Running]:
    with running(method="prompt-lookup", max_rows=4) as server:
        yield server


def test_company_changes_nothing(plain: Running) -> None:
    drawn = {"temperature": 1.0, "seed": 5}
    alone = [plain.chat(f"say {n}", **(drawn if n % 2 else {})) for n in range(6)]
    with ThreadPoolExecutor(6) as pool:
        many = list(
            pool.map(lambda n: plain.chat(f"say {n}", **(drawn if n % 2 else {})), range(6))
        )
    texts = [answer.choices[0].message.content for answer in alone]
    assert [answer.choices[0].message.content for answer in many] == texts
    assert len(set(texts)) > 1


def test_a_seed_gives_the_same_text_with_a_draft_and_without(plain: Running) -> None:
    expected = plain.chat(temperature=1.1, seed=11).choices[0].message.content
    with running(pair(draft=True)) as drafting:
        assert drafting.client.models.list().data[0].model_extra["method"] == "speculative"
        got = drafting.chat(temperature=1.1, seed=11).choices[0].message.content
    assert got == expected


class Slow:
    """Holds the engine up before each round, until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.go.set()
        usual = Engine.step

        def step(engine: Any) -> Any:
            assert self.go.wait(WAIT)
            return usual(engine)

        monkeypatch.setattr(Engine, "step", step)


@pytest.mark.slow
def test_a_server_that_is_stopped_ends_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch)
    with running() as server, ThreadPoolExecutor(1) as pool:
        expected = server.chat().choices[0].message.content
        slow.go.clear()
        future = pool.submit(server.chat)
        wait_for(lambda: server.server.thread.load().running + server.server.thread.load().waiting)
        server.server.server.should_exit = True
        wait_for(lambda: server.server.thread.state == "draining")
        assert httpx.get(f"{server.address}/ready").status_code == 503
        answer = httpx.post(f"{server.address}/v1/chat/completions", json={"messages": HELLO})
        assert answer.status_code == 503
        slow.go.set()
        assert future.result(WAIT).choices[0].message.content == expected
    assert not server.errors


@pytest.mark.slow
@pytest.mark.parametrize("hangs", [False, True])
def test_what_outlives_the_grace_of_sigterm_gets_a_503(
    hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the engine; by Uvicorn if a step of the engine does not return."""
    slow = Slow(monkeypatch)
    with running(grace_seconds=0.0) as server, ThreadPoolExecutor(1) as pool:
        slow.go.clear()
        future = pool.submit(server.chat)
        wait_for(lambda: server.server.thread.load().running + server.server.thread.load().waiting)
        server.server.server.handle_exit(signal.SIGTERM, None)
        wait_for(lambda: server.server.thread._is_closing)
        if not hangs:
            slow.go.set()
        with pytest.raises(openai.APIStatusError, match="the server is stopping") as caught:
            future.result(WAIT)
        slow.go.set()
        assert caught.value.status_code == 503
    assert not server.errors


@pytest.mark.parametrize("failure", [MemoryError("no room"), RuntimeError("no step works")])
def test_a_server_whose_engine_is_lost_ends_with_an_error(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running() as server:

        def broken(*args: Any, **more: Any) -> Any:
            raise failure

        monkeypatch.setattr(Engine, "step", broken)
        with pytest.raises(openai.APIStatusError) as caught:
            server.chat()
        assert caught.value.status_code == 503
        wait_for(lambda: server.errors)
    (error,) = server.errors
    assert isinstance(error, SoonerError)
    assert f"the engine was lost ({type(failure).__name__})" in str(error)


def test_grammars_bind_answers(plain: Running) -> None:
    pytest.importorskip("llguidance")
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],
              "additionalProperties": False}  # fmt: skip
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    told = plain.chat(response_format=wanted, max_tokens=60)
    assert told.choices[0].message.content.replace(" ", "").replace("\n", "")[:4] == '{"a"'


def test_the_decode_processes_end_with_the_server() -> None:
    with running() as server:
        wait_for(lambda: server.server.prompts.media.processes._alive)
        (process,) = server.server.prompts.media.processes._alive
    assert process.process.poll() is not None
