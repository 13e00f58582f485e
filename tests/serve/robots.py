"""What tests of the server share: requests, a policy that waits to be let go, an app that runs."""

from __future__ import annotations

import asyncio
import base64
import http.client
import io
import json
import queue
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
from PIL import Image

from sooner.engine.stats.run import Stats
from sooner.errors import SoonerError
from sooner.serve.act import ActHandler, build_server
from sooner.serve.app import create_app
from sooner.serve.settings import ServeSettings
from sooner.tasks.act import Observation
from tiny_policy import INSTRUCTIONS, image

WAIT = 240
"""Seconds after which a test gives up; none depends on how long things take."""


def json_numpy(array: np.ndarray) -> dict[str, Any]:
    """As the `json_numpy` package has it."""
    data = base64.b64encode(array.tobytes()).decode()
    return {"__numpy__": data, "dtype": array.dtype.str, "shape": list(array.shape)}


def from_json_numpy(encoded: dict[str, Any]) -> np.ndarray:
    data = base64.b64decode(encoded["__numpy__"])
    return np.frombuffer(data, np.dtype(encoded["dtype"])).reshape(encoded["shape"])


def png(array: np.ndarray) -> str:
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()


def npy(array: np.ndarray) -> str:
    stream = io.BytesIO()
    np.save(stream, array)
    return base64.b64encode(stream.getvalue()).decode()


def request(seed: int = 0, **fields: Any) -> dict[str, Any]:
    body = {"image": png(image(seed)), "instruction": INSTRUCTIONS[seed % len(INSTRUCTIONS)]}
    return {**body, **fields}


class SlowPolicy:
    """Acts when it is let go; its action is the instruction's number.

    Attributes:
        batches: instructions of every call.
        began: set when a call begins.
        go: calls wait for it.
    """

    name, horizon, default_method, unnorm_key = "slow", 1, "plain", "table"
    statistics = {"table": None}  # noqa: RUF012

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.methods: list[str] = []
        self.began, self.go = threading.Event(), threading.Event()
        self.go.set()

    def check_method(self, name: str) -> str:
        return name

    def fitted(self, observation: Observation) -> Observation:
        return observation

    def act(self, observations: Sequence[Observation], *, method: str | None) -> list[Any]:
        texts = [observation.instruction for observation in observations]
        self.began.set()
        assert self.go.wait(20)
        self.batches.append(texts)
        self.methods.append(str(method))
        if "break" in texts:
            raise RuntimeError("broken")
        if "refuse" in texts:
            raise SoonerError("this one can't be done")
        stats = Stats(rows=len(texts), tokens=7 * len(texts), nfe=7)
        return [self._action(text, stats) for text in texts]

    def _action(self, text: str, stats: Stats) -> Any:
        number = float(text) if text.isdecimal() else -1.0
        values = np.full((1, 7), number)
        record = {"action": values.tolist(), "mode": "exact"}
        return SimpleNamespace(
            values=values, mode="exact", method="plain", stats=stats, as_dict=lambda: record
        )

    def forget(self) -> None:
        """What warming up left."""
        self.batches.clear()
        self.methods.clear()
        self.began.clear()


@asynccontextmanager
async def running(policy: Any, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an app whose policy is warm."""
    handler = ActHandler(policy, ServeSettings(**settings))
    app = create_app(handler)
    async with app.router.lifespan_context(app):
        await until(lambda: handler.service.state != "warming")
        if isinstance(policy, SlowPolicy):
            policy.forget()
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            client.handler = handler  # type: ignore[attr-defined]
            client.app = app  # type: ignore[attr-defined]
            yield client


async def until(what: Any, seconds: float = 120.0) -> None:
    """Wait for a condition; how long it takes decides nothing."""
    async with asyncio.timeout(seconds):
        while not what():
            await asyncio.sleep(0.002)


def body_of(body: Any) -> bytes:
    return json.dumps(body).encode()


@contextmanager
def served(policy: Any, **options: Any) -> Iterator[str]:
    """Address of a server that runs in a thread."""
    server = build_server(policy, ServeSettings(port=0, **options))
    addresses: queue.SimpleQueue[str] = queue.SimpleQueue()
    thread = threading.Thread(target=server.listen, args=[addresses.put])
    thread.start()
    try:
        yield addresses.get(timeout=WAIT)
    finally:
        if isinstance(policy, SlowPolicy):
            policy.go.set()
        server.should_exit = True
        thread.join(WAIT)
    assert not thread.is_alive()


def raw(address: str, data: bytes) -> bytes:
    """What a server answers to bytes that may be no HTTP."""
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return connection.recv(1 << 16)


def post(address: str, body: bytes, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=WAIT)
    connection.request("POST", "/act", body, headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())
