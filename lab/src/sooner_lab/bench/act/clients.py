"""A real server asked by several clients at once: throughput, tail latency, requests lost.

Like with like: all rows of a method ask one server, in rounds that alternate between the numbers
of clients; `plain` is the same method at every size of batch, the policy's own choice may change.
Server and clients are processes on cores of their own, with Nagle's algorithm off on both sides.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from PIL import Image

from sooner.errors import SoonerError
from sooner.tasks.act.policy import Policy

from ..cores import pinned, split_cores
from .load import PATIENCE, Clients, Load
from .observations import Recorded
from .settings import ActSettings

Progress = Callable[[str], None]
ROUNDS = 3
LEAST = 102
"""Requests of a row at least: below a hundred there is no 99th percentile."""
DIRECT = 20
"""Calls of the policy without a server, for what the server adds."""


def clients(
    settings: ActSettings, policy: Policy, recorded: list[Recorded], progress: Progress
) -> list[dict[str, Any]]:
    """A row for each method and number of clients, each asking as soon as it is answered.

    Returns:
        For each: `method`, `clients`, `requests`, `lost`, `requests_per_second` (the median of the
        rounds, with `interval` from the least to the most), `times_one` (as a multiple of the same
        method's first row), `p50_ms`, `p95_ms`, `p99_ms`, `direct_ms` (the same action without a
        server, median), `server_cores`, `client_cores`, and `no_delay`, whether Nagle's algorithm
        was off on all sockets.

    Raises:
        SoonerError: the server's packages are not installed.
    """
    server_cores, client_cores = split_cores()
    bodies = [_body(one) for one in recorded]
    rows: list[dict[str, Any]] = []
    with pinned(server_cores), Clients(client_cores) as asking:
        for method in dict.fromkeys(("plain", policy.default_method)):
            direct = _direct(policy, method, recorded)
            with _served(policy, method, max(settings.clients)) as server:
                loads = _loads(settings, asking, server, bodies, progress)
                no_delay = server.has_no_delay()
            found = [_row(method, count, loads[count]) for count in settings.clients]
            for row in found:
                row["times_one"] = row["requests_per_second"] / found[0]["requests_per_second"]
                row["direct_ms"] = direct
                row["server_cores"], row["client_cores"] = server_cores, client_cores
                row["no_delay"] = row["no_delay"] and no_delay
            rows += found
    return rows


def _loads(
    settings: ActSettings, asking: Clients, server: _Served, bodies: list[bytes], progress: Progress
) -> dict[int, list[Load]]:
    """Rounds of every number of clients; the first round measures nothing."""
    total = max(settings.requests * max(settings.clients), LEAST)
    loads: dict[int, list[Load]] = {count: [] for count in settings.clients}
    for turn in range(1 + ROUNDS):
        for count in settings.clients:
            progress(f"server, {server.method}, {count} clients, round {turn} of {ROUNDS}")
            each = math.ceil(total / ROUNDS / count)
            load = asking.ask(server.host, server.port, bodies, count, each)
            if turn > 0:
                loads[count].append(load)
    return loads


def _row(method: str, count: int, loads: list[Load]) -> dict[str, Any]:
    seconds = [one for load in loads for one in load.seconds]
    rates = [len(load.seconds) / load.spent for load in loads]
    return {
        "method": method,
        "clients": count,
        "requests": len(seconds),
        "lost": sum(load.lost for load in loads),
        "requests_per_second": float(np.median(rates)),
        "interval": [min(rates), max(rates)],
        **{f"p{p}_ms": 1000 * float(np.percentile(seconds, p)) for p in (50, 95, 99)},
        "no_delay": all(load.no_delay for load in loads),
    }


def _body(one: Recorded) -> bytes:
    file = io.BytesIO()
    Image.fromarray(one.seen.image).save(file, "PNG")
    picture = base64.b64encode(file.getvalue()).decode()
    return json.dumps({"image": picture, "instruction": one.seen.instruction}).encode()


def _direct(policy: Policy, method: str, recorded: list[Recorded]) -> float:
    """Milliseconds of one action without a server, median."""
    spent = []
    for turn in range(2 + DIRECT):
        start = time.perf_counter()
        policy.act([recorded[turn % len(recorded)].seen], method=method)
        spent.append(time.perf_counter() - start)
    return 1000 * float(np.median(spent[2:]))


class _Served:
    """A server that runs, seen from outside.

    Attributes:
        method: that it decodes by.
        host, port: its address.
    """

    def __init__(self, server: Any, method: str, listening: socket.socket) -> None:
        self.server, self.method = server, method
        self.host, self.port = listening.getsockname()[:2]

    def has_no_delay(self) -> bool:
        """Whether sockets that it accepts have Nagle's algorithm off, seen on one."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        try:
            connection.request("GET", "/health")
            connection.getresponse().read()
            own = connection.sock.getsockname()
            accepted = [
                one.transport.get_extra_info("socket")
                for one in list(self.server.server_state.connections)
                if one.transport.get_extra_info("peername") == own
            ]
            option = socket.IPPROTO_TCP, socket.TCP_NODELAY
            return bool(accepted) and all(one.getsockopt(*option) for one in accepted)
        finally:
            connection.close()


@contextmanager
def _served(policy: Policy, method: str, most: int) -> Iterator[_Served]:
    """The policy behind a real socket on a free port of the loopback."""
    from sooner.serve.run import bind, build_server, require
    from sooner.serve.settings import ServeSettings

    require()
    settings = ServeSettings(port=0, max_batch=most, method=method)
    ready = threading.Event()
    with bind(settings) as listening:
        server = build_server(policy, settings, ready.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            if not ready.wait(PATIENCE):
                raise SoonerError(
                    f"the server was not ready after {PATIENCE:g} s; try --parts offline"
                )
            yield _Served(server, method, listening)
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
