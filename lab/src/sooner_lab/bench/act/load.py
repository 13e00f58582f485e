"""Clients that ask a server as soon as they are answered, in a process of their own.

In the server's process they would share its interpreter lock, and be measured as part of it.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from ..cores import pin

WARM = 2
"""Requests of each client that are not counted."""
PATIENCE = 120.0
"""Seconds after which an answer is given up."""


@dataclass(frozen=True)
class Load:
    """What clients measured.

    Attributes:
        seconds: of every request, answered or not.
        lost: requests without an action.
        spent: seconds from the first counted request to the last.
        no_delay: Nagle's algorithm was off on every client's socket.
    """

    seconds: list[float]
    lost: int
    spent: float
    no_delay: bool


class Clients:
    """A process of clients.

    Args:
        cores: that it may use; `None` leaves it to the system.
    """

    def __init__(self, cores: Sequence[int] | None) -> None:
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), pin, (cores,))

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def ask(self, host: str, port: int, bodies: list[bytes], count: int, requests: int) -> Load:
        """`count` clients at once send `requests` each, behind a warm-up that begins together."""
        return self._pool.submit(_ask, host, port, bodies, count, requests).result()


def _ask(host: str, port: int, bodies: list[bytes], count: int, requests: int) -> Load:
    seconds: list[float] = []
    lost, no_delay = [0] * count, [False] * count
    together = threading.Barrier(count + 1)

    def client(number: int) -> None:
        connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
        for turn in range(WARM + requests):
            if turn == WARM:
                no_delay[number] = _has_no_delay(connection)
                together.wait()
            body = bodies[(number * (WARM + requests) + turn) % len(bodies)]
            start = time.perf_counter()
            is_answered = _post(connection, body)
            if turn >= WARM:
                seconds.append(time.perf_counter() - start)
                lost[number] += not is_answered
        connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    together.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    return Load(seconds, sum(lost), time.perf_counter() - start, all(no_delay))


def _post(connection: http.client.HTTPConnection, body: bytes) -> bool:
    try:
        connection.request("POST", "/act", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        connection.close()
        return False
    return answer.status == 200


def _has_no_delay(connection: http.client.HTTPConnection) -> bool:
    sock = connection.sock
    return sock is not None and bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
