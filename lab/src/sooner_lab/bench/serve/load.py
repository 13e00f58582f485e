"""Clients of a server in a process of their own: closed loops, and arrivals that wait for nobody.

One thread and one event loop: it notes when bytes come and nothing else, so that 32 streams don't
make it late. What they say is read once the load has ended. Needs no torch.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context

import numpy as np

from ..cores import pin

PATIENCE = 300.0
"""Seconds after which an answer is given up."""
END = b"\r\n\r\n"


@dataclass(frozen=True)
class HttpRequest:
    """One request as it is sent.

    Attributes:
        number: of what is asked, for whoever reads the answers.
        path: such as `/v1/completions`.
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
        due: when it was to be sent; an open loop that is late counts from here.
        sent: when it was.
        status: 0 if the connection broke or `PATIENCE` ended.
        events: each server-sent event with the time of its last byte; or the whole body.
        ended: when the last byte came.
    """

    number: int
    due: float
    sent: float
    status: int
    events: list[tuple[float, bytes]] = field(repr=False)
    ended: float


@dataclass(frozen=True)
class LoadResult:
    """All answers of one load, in the order in which they ended.

    Attributes:
        seconds: from the first request to the last byte.
        clients: at once; `None` in an open loop.
    """

    answers: list[HttpAnswer]
    seconds: float
    clients: int | None


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
        return self._pool.submit(_run, port, list(requests), clients, None).result()

    def open(
        self, port: int, requests: Sequence[HttpRequest], arrivals: Sequence[float]
    ) -> LoadResult:
        """Each request is sent at its time, whatever became of the others."""
        return self._pool.submit(_run, port, list(requests), None, list(arrivals)).result()


def poisson_arrivals(rate: float, count: int, seed: int) -> list[float]:
    """Seconds at which `count` requests come, `rate` a second on average (Poisson)."""
    gaps = np.random.default_rng([seed, count]).exponential(1 / rate, count)
    return [float(arrival) for arrival in np.cumsum(gaps)]


def mixed_order(distinct: int, times: int, seed: int) -> list[int]:
    """Every request `times` times, each time in another order."""
    rng = np.random.default_rng([seed, distinct, times])
    return [int(number) for _ in range(times) for number in rng.permutation(distinct)]


def _run(
    port: int, requests: list[HttpRequest], clients: int | None, arrivals: list[float] | None
) -> LoadResult:
    gc.collect()
    gc.disable()  # a collection would be told as a slow token
    try:
        return asyncio.run(_load(port, requests, clients, arrivals))
    finally:
        gc.enable()


async def _load(
    port: int, requests: list[HttpRequest], clients: int | None, arrivals: list[float] | None
) -> LoadResult:
    answers: list[HttpAnswer] = []
    if arrivals is None:
        assert clients is not None
        connections = [_Connection(port) for _ in range(clients)]
        for item in connections:
            await item.open()
        queue = iter(requests)
        start = time.perf_counter()
        await asyncio.gather(*(_client(item, queue, answers, start) for item in connections))
    else:
        start = time.perf_counter()
        asking = [
            _arrival(port, item, due, answers, start)
            for item, due in zip(requests, arrivals, strict=True)
        ]
        await asyncio.gather(*asking)
    return LoadResult(answers, time.perf_counter() - start, clients)


async def _client(
    connection: _Connection, queue: Iterator[HttpRequest], answers: list[HttpAnswer], start: float
) -> None:
    for request in queue:
        answers.append(await connection.ask(request, start, time.perf_counter() - start))
    connection.close()


async def _arrival(
    port: int, request: HttpRequest, due: float, answers: list[HttpAnswer], start: float
) -> None:
    await asyncio.sleep(max(due - (time.perf_counter() - start), 0.0))
    connection = _Connection(port)
    answers.append(await connection.ask(request, start, due))
    connection.close()


class _Connection:
    """A connection of HTTP/1.1 that is kept open from request to request."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    async def ask(self, request: HttpRequest, start: float, due: float) -> HttpAnswer:
        """Send a request and note what comes, and when."""
        events: list[tuple[float, bytes]] = []
        sent = time.perf_counter() - start
        try:
            async with asyncio.timeout(PATIENCE):
                status = await self._exchange(request, events, start)
        except (OSError, EOFError, ValueError, TimeoutError):
            self.close()
            status = 0
        ended = time.perf_counter() - start
        return HttpAnswer(request.number, due, sent, status, events, ended)

    async def _exchange(
        self, request: HttpRequest, events: list[tuple[float, bytes]], start: float
    ) -> int:
        if self._writer is None:
            await self.open()
        assert self._reader is not None
        assert self._writer is not None
        head = (
            f"POST {request.path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(request.body)}"
        )
        self._writer.write(head.encode() + END + request.body)
        status, length = _head(await self._reader.readuntil(END))
        if length is not None:
            events.append((time.perf_counter() - start, await self._reader.readexactly(length)))
            return status
        pending = b""
        while size := int((await self._reader.readuntil(b"\r\n")).strip(), 16):
            pending += (await self._reader.readexactly(size + 2))[:-2]
            now = time.perf_counter() - start
            *whole, pending = pending.split(b"\n\n")
            events += [(now, event) for event in whole]
        await self._reader.readexactly(2)
        return status


def _head(info: bytes) -> tuple[int, int | None]:
    """Status and length of an answer; no length where it comes in chunks."""
    first, *lines = info.decode("latin-1").split("\r\n")
    fields = {
        name.lower(): value.strip() for name, _, value in (field.partition(":") for field in lines)
    }
    length = fields.get("content-length")
    return int(first.split()[1]), None if length is None else int(length)
