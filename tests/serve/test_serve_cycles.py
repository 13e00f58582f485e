"""What a request held is gone when it ends, and does not wait for cycles to be collected."""

from __future__ import annotations

import gc
import json
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import tiny
from serve.chatting import CHAT, HELLO, VOCAB, listening, served
from serve.test_openai_clients import stub_thread
from serve.test_refused_bodies import connected, head
from sooner.engine.scheduler import Engine
from sooner.methods import Autoregressive, PromptLookup, Speculative
from sooner.serve.openai.planning import Prepared
from sooner.serve.refusal import BadRequestError

pytestmark = pytest.mark.slow


class Pixels:
    """Prepares prompts with pixels, and knows which of them are still there.

    Attributes:
        prompt_tokens: of each prompt.
        refusal: makes what is raised once they are there.
    """

    def __init__(
        self, prompt_tokens: int = 5, refusal: Callable[[], Exception] | None = None
    ) -> None:
        self.prompt_tokens, self.refusal = prompt_tokens, refusal
        self.made = 0
        self.alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()

    async def __call__(self, request: Any) -> Prepared:
        pixels = torch.zeros(3, 100, 100)
        self.alive.add(pixels)
        self.made += 1
        if self.refusal is not None:
            raise self.refusal()
        ids = torch.ones(1, self.prompt_tokens, dtype=torch.long)
        return Prepared({"input_ids": ids, "pixel_values": pixels}, self.prompt_tokens)


@contextmanager
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def gone(pixels: Pixels) -> None:
    """Soon, as threads let go of what they did last when they do the next thing."""
    end = time.monotonic() + 20
    while pixels.alive and time.monotonic() < end:
        time.sleep(0.01)
    assert pixels.made
    assert not pixels.alive


def ask(address: str, hang_up: float | None = None, **fields: Any) -> bytes:
    """The answer; or nothing, if the client leaves after so many seconds."""
    body = json.dumps({**HELLO, **fields}).encode()
    with connected(address) as connection:
        connection.sendall(head(len(body), CHAT, "Connection: close\r\n") + body)
        if hang_up is not None:
            time.sleep(hang_up)
            return b""
        data = b""
        while piece := connection.recv(1 << 16):
            data += piece
    return data


@contextmanager
def server(pixels: Pixels, seconds: float = 0.0) -> Iterator[str]:
    """A server whose rounds take `seconds`; within, no cycle is collected."""
    with (
        stub_thread(spend=lambda cost: time.sleep(seconds), max_rows=2, max_requests=3) as thread,
        listening(thread, served(prepare=pixels)) as address,
        no_collection(),
    ):
        yield address


@pytest.mark.parametrize("stream", [False, True])
def test_of_an_answer(stream: bool) -> None:
    pixels = Pixels()
    with server(pixels) as address:
        for _ in range(3):
            assert b" 200 " in ask(address, stream=stream, n=2, max_tokens=20)
        gone(pixels)


@pytest.mark.parametrize("stream", [False, True])
def test_of_a_hang_up(stream: bool) -> None:
    pixels = Pixels()
    with server(pixels, 0.02) as address:
        for _ in range(3):
            ask(address, hang_up=0.2, stream=stream, max_tokens=1000)
        gone(pixels)


@pytest.mark.parametrize(
    ("pixels", "fields", "status"),
    [
        (Pixels(5000), {}, b" 400 "),  # too long
        (Pixels(5, lambda: BadRequestError("messages", "none")), {}, b" 400 "),
        (Pixels(), {"n": 6}, b" 429 "),  # more than the service takes: some were submitted
    ],
    ids=["long", "media", "full"],
)
def test_of_a_refusal(pixels: Pixels, fields: dict[str, Any], status: bytes) -> None:
    with server(pixels) as address:
        for stream in (False, True):
            assert status in ask(address, stream=stream, max_tokens=5, **fields)
        gone(pixels)


@pytest.mark.parametrize("method", [Autoregressive(), PromptLookup(), Speculative])
def test_of_the_keys_and_values_of_a_batch(method: Any) -> None:
    target, draft = (tiny.model("qwen2", seed=seed, vocab=VOCAB) for seed in (0, 1))
    engine = Engine(target, method(draft) if method is Speculative else method, prefill_chunk=4)
    inputs = {"input_ids": torch.arange(9)[None], "attention_mask": torch.ones(1, 9).long()}
    with no_collection():
        for _ in range(2):
            requests = [
                engine.add_request(inputs, max_new_tokens=8, seed=seed) for seed in range(3)
            ]
            while engine.batch is None:
                engine.step()
            cache = engine.batch.session.target.cache
            stores = [weakref.ref(layer.whole[0]) for layer in cache.slot_layers]
            ended, cache = weakref.ref(cache), None
            engine.cancel(requests[1])
            engine.run()
            assert [request.error for request in requests] == [None] * 3
            assert ended() is None
            assert [store() for store in stores] == [None] * len(stores)
