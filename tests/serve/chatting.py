"""What tests of OpenAI's API share: a service that says a script, an app around it, clients."""

from __future__ import annotations

import asyncio
import copy
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import torch

from serve.robots import WAIT
from serve.spoken import byte_level, ids_of
from sooner import Autoregressive
from sooner.engine.request import TokenLogprobs
from sooner.engine.rows import Reason
from sooner.engine.stats.run import DraftCount
from sooner.serve.app import DrainingServer, create_app
from sooner.serve.engine_thread import ServedRequest, ServiceLoad, ServiceState, Tokens
from sooner.serve.openai.app import OpenAIHandler
from sooner.serve.openai.planning import Prepared, ServedModel
from sooner.serve.openai.protocol import ChatRequest
from sooner.serve.refusal import not_ready
from sooner.serve.run import bind, url
from sooner.serve.settings import ChatSettings

NAMES = ("tiny", "org/tiny")
VOCAB = 512
HELLO = {"messages": [{"role": "user", "content": "hello"}]}


class ScriptedService:
    """Says what it is told to, in a thread of its own; of each request a block a round.

    Args:
        script: text of a request; an end token follows where it fits.
        blocks: tokens a round commits, by turns; all but the last of each are drafted.
        pause: seconds that a round takes.

    Attributes:
        go: rounds wait for it.
        failure: a request ends with it, after one round.
        rows: requests that have not ended.
        requests: all that were submitted.
        refusal: raised by `submit`.
    """

    def __init__(
        self,
        script: str | Callable[[ServedRequest], str] = "hello",
        blocks: Sequence[int] = (3,),
        pause: float = 0.0,
    ) -> None:
        self.script, self.blocks, self.pause = script, tuple(blocks), pause
        self.state: ServiceState = "ready"
        self.clock, self.listener = time.monotonic, None
        self.go = threading.Event()
        self.go.set()
        self.fault: str | None = None
        self.failure: Exception | None = None
        self.failed_reason: Reason = "error"
        self.refusal: Exception | None = None
        self.rows: dict[ServedRequest, list[int]] = {}
        self.requests: list[ServedRequest] = []
        self.rounds = 0
        self.ticked = time.monotonic()
        self._emitted: dict[ServedRequest, int] = {}
        self._lock = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def last_tick(self) -> float:
        return self.ticked

    def submit(self, request: ServedRequest) -> None:
        if self.refusal is not None:
            raise self.refusal
        text = self.script if isinstance(self.script, str) else self.script(request)
        ids = [*ids_of(text), byte_level().eos_token_id]
        with self._lock:
            self.requests.append(request)
            limit = request.options.sampling["max_new_tokens"]
            self.rows[request], self._emitted[request] = ids[:limit], 0
            self._lock.notify_all()

    def cancel(self, request: ServedRequest, reason: Reason = "cancelled") -> None:
        with self._lock:
            if request in self.rows:
                self._end(request, reason)

    def load(self) -> ServiceLoad:
        return ServiceLoad(len(self.rows), 0)

    def check_takes(self) -> None:
        if self.state != "ready":
            raise not_ready(self.state, self.fault)

    def drain(self) -> None:
        """It outlives the applications of a test."""

    def start(self) -> None:
        """It runs already."""

    def close(self, grace: float, under_way: Callable[[], int]) -> bool:
        """It outlives the applications of a test."""
        return True

    def end(self) -> None:
        with self._lock:
            self._is_closed = True
            for request in list(self.rows):
                self._end(request, "cancelled")
            self._lock.notify_all()
        self._thread.join(WAIT)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self.rows or self._is_closed)
                if self._is_closed:
                    return
            self.go.wait(0.01)
            time.sleep(self.pause)
            with self._lock:
                if not self.go.is_set():
                    continue
                self.rounds += 1
                for request in list(self.rows):
                    self._round(request)

    def _round(self, request: ServedRequest) -> None:
        size = self.blocks[self._emitted[request] % len(self.blocks)]
        block, self.rows[request] = self.rows[request][:size], self.rows[request][size:]
        self._emitted[request] += len(block)
        logprobs = None
        if (many := request.options.logprobs) is not None:
            top = [(1 + token, -0.5 * token) for token in range(many)]
            logprobs = [
                TokenLogprobs(token, -float("inf") if token == 7 else -0.25, top) for token in block
            ]
        self._tell(request, Tokens(block, len(block) - 1, logprobs))
        if self.failure is not None:
            self._end(request, self.failed_reason, self.failure)
        elif not self.rows[request]:
            self._end(request, "stop" if block[-1] in request.stop_token_ids else "length")

    def _end(self, request: ServedRequest, reason: Reason, error: Exception | None = None) -> None:
        del self.rows[request]
        request.completion_tokens = self._emitted[request]
        steps = -(-request.completion_tokens // self.blocks[0])
        request.acceptance.update({self.blocks[0] - 1: steps})
        request.drafts = DraftCount(steps, 2 * steps)
        request.cached_tokens = 2
        request.finish([[]], reason, error)
        self._tell(request, None)

    def _tell(self, request: ServedRequest, event: Tokens | None) -> None:
        try:
            request.sink(event)
        except RuntimeError:  # the client's loop is closed
            self.rows.pop(request, None)


async def prepare(request: ChatRequest) -> Prepared:
    """Messages by the chat template; no media."""
    messages = [message.model_dump(exclude_none=True) for message in request.messages]
    text = byte_level().apply_chat_template(
        messages, tools=request.template_tools, add_generation_prompt=True, tokenize=False
    )
    ids = ids_of(text)
    return Prepared({"input_ids": torch.tensor([ids])}, len(ids))


def with_template(template: Any) -> Any:
    """The tokenizer, with a response template."""
    tokenizer = copy.copy(byte_level())
    tokenizer.response_template = template
    return tokenizer


def served(response_template: Any = None, **fields: Any) -> ServedModel:
    tokenizer = with_template(response_template)
    known: dict[str, Any] = {
        "names": NAMES, "tokenizer": tokenizer, "prepare": prepare, "max_model_len": 2048,
        "vocab_size": VOCAB, "stop_token_ids": frozenset([tokenizer.eos_token_id]),
        "created": 1_700_000_000,
    }  # fmt: skip
    return ServedModel(**{**known, **fields})


def handler_of(service: Any, model: ServedModel | None = None, **options: Any) -> OpenAIHandler:
    settings = ChatSettings(**options.pop("settings", {}))
    model = model or served(method=getattr(service, "method", Autoregressive()))
    return OpenAIHandler(model, service, settings, **options)


@asynccontextmanager
async def talking(service: Any, *args: Any, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an app on the loopback, whose service outlives it."""
    app = create_app(handler_of(service, *args, **options))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
        client.app = app  # type: ignore[attr-defined]
        client.handler = app.state.handler  # type: ignore[attr-defined]
        yield client
    app.state.handler.grammars.close()


@contextmanager
def listening(service: Any, *args: Any, **options: Any) -> Iterator[str]:
    """Address of a server on a socket, which runs in a thread."""
    settings = {"port": 0, **options.pop("settings", {})}
    handler = handler_of(service, *args, settings=settings, **options)
    with bind(handler.settings) as socket:
        server = DrainingServer(create_app(handler), handler.settings)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.005)
            yield url(socket)
        finally:
            server.should_exit = True
            thread.join(WAIT)
    assert not thread.is_alive()


@contextmanager
def scripted(*args: Any, **options: Any) -> Iterator[ScriptedService]:
    service = ScriptedService(*args, **options)
    try:
        yield service
    finally:
        service.end()


CHAT = "/v1/chat/completions"


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
