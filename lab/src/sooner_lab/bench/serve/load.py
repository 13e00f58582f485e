"""Clients of a server in a process of their own, in closed loops.

One thread and one event loop: it notes when bytes come and nothing else, so that 32 streams don't
make it late. What they say is read once the load has ended. Needs no torch.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

import numpy as np

from ..cores import pin

TIMEOUT = 300.0
"""Seconds after which an answer is given up."""


@dataclass(frozen=True)
class HttpRequest:
    """One request as it is sent.

    Attributes:
        number: of what is asked, for whoever reads the answers.
        path: such as `/v1/chat/completions`.
        body: JSON.
    """

    number: int
    path: str
    body: bytes = field(repr=False)


@dataclass(frozen=True)
class HttpAnswer:
    """What came back; seconds since the load began.

    Attributes:
        number: of the request.
        due: when it was sent.
        status: 0 if the connection broke or `TIMEOUT` ended.
        events: each server-sent event with the time of its last byte; or the whole body.
        ended: when the last byte came.
    """

    number: int
    due: float
    status: int
    events: list[tuple[float, bytes]] = field(repr=False)
    ended: float


@dataclass(frozen=True)
class LoadResult:
    """All answers of one load, in the order in which they ended.

    Attributes:
        seconds: from the first request to the last byte.
    """

    answers: list[HttpAnswer]
    seconds: float


class LoadProcess:
    """A process of clients.

    Args:
        cores: that it may use; `None` leaves it to the system.
    """

    def __init__(self, cores: Sequence[int] | None) -> None:
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), pin, (cores,))

    def __enter__(self) -> LoadProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def closed(self, port: int, requests: Sequence[HttpRequest], clients: int) -> LoadResult:
        """`clients` at once take the requests in their order, each the next once it is answered."""
        return self._pool.submit(_run, port, list(requests), clients).result()


def mixed_order(distinct: int, times: int, seed: int) -> list[int]:
    """Every request `times` times, each time in another order."""
    rng = np.random.default_rng([seed, distinct, times])
    return [int(number) for _ in range(times) for number in rng.permutation(distinct)]


def _run(port: int, requests: list[HttpRequest], clients: int) -> LoadResult:
    gc.collect()
    gc.disable()  # a collection would be told as a slow token
    try:
        return asyncio.run(_load(port, requests, clients))
    finally:
        gc.enable()


async def _load(port: int, requests: list[HttpRequest], clients: int) -> LoadResult:
    import httpx

    answers: list[HttpAnswer] = []
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    url = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(
        base_url=url, limits=limits, timeout=None, trust_env=False
    ) as http:
        start = time.perf_counter()

        async def client(queue: Iterator[HttpRequest]) -> None:
            for request in queue:
                answers.append(await _ask(http, request, start))

        queue = iter(requests)
        await asyncio.gather(*(client(queue) for _ in range(clients)))
        return LoadResult(answers, time.perf_counter() - start)


async def _ask(http: Any, request: HttpRequest, start: float) -> HttpAnswer:
    """Send a request and note what comes, and when."""
    import httpx

    events: list[tuple[float, bytes]] = []
    due, status, pending = time.perf_counter() - start, 0, b""
    headers = {"Content-Type": "application/json"}
    try:
        async with (
            asyncio.timeout(TIMEOUT),
            http.stream("POST", request.path, content=request.body, headers=headers) as response,
        ):
            async for piece in response.aiter_raw():
                now = time.perf_counter() - start
                *whole, pending = (pending + piece).split(b"\n\n")
                events += [(now, event) for event in whole]
            status = response.status_code
    except (httpx.HTTPError, TimeoutError):
        status = 0
    ended = time.perf_counter() - start
    if pending:
        events.append((ended, pending))
    return HttpAnswer(request.number, due, status, events, ended)
