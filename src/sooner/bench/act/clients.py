"""A real server asked by several clients at once: throughput, tail latency, requests lost."""

from __future__ import annotations

import base64
import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from PIL import Image

from ...errors import SoonerError
from ...tasks.act.policy import Policy
from .observations import Recorded
from .settings import ActSettings

Progress = Callable[[str], None]
WARM = 3
"""Requests of each client that are not counted."""
PATIENCE = 120.0


def clients(
    settings: ActSettings, policy: Policy, recorded: list[Recorded], progress: Progress
) -> list[dict[str, Any]]:
    """A row for each number of clients, each of them asking as soon as it is answered.

    Raises:
        SoonerError: the server's packages are not installed.
    """
    try:
        import httpx
    except ImportError as error:
        raise SoonerError(
            "the clients part needs httpx; pip install 'sooner[dev]', or leave it out of --parts"
        ) from error
    bodies = [_body(one) for one in recorded]
    rows = []
    with _served(policy, max(settings.clients)) as address, httpx.Client(timeout=PATIENCE) as http:

        def ask(number: int) -> bool:
            return http.post(f"{address}/act", json=bodies[number % len(bodies)]).status_code == 200

        for count in settings.clients:
            progress(f"server, {count} clients")
            rows.append({"clients": count, **_load(ask, count, settings.requests)})
    return rows


def _body(one: Recorded) -> dict[str, Any]:
    file = io.BytesIO()
    Image.fromarray(one.seen.image).save(file, "PNG")
    picture = base64.b64encode(file.getvalue()).decode()
    return {"image": picture, "instruction": one.seen.instruction}


def _load(ask: Callable[[int], bool], count: int, requests: int) -> dict[str, Any]:
    """All clients at once, after a warm-up that begins together too."""
    seconds: list[float] = []
    lost = [0] * count
    together = threading.Barrier(count + 1)

    def client(number: int) -> None:
        for turn in range(WARM + requests):
            if turn == WARM:
                together.wait()
            start = time.perf_counter()
            try:
                answered = ask(number * (WARM + requests) + turn)
            except Exception:
                answered = False
            if turn >= WARM:
                seconds.append(time.perf_counter() - start)
                lost[number] += not answered

    threads = [threading.Thread(target=client, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    together.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    spent = time.perf_counter() - start
    percentiles = {f"p{p}_ms": 1000 * float(np.percentile(seconds, p)) for p in (50, 95, 99)}
    return {
        "requests": len(seconds),
        "lost": sum(lost),
        "requests_per_second": len(seconds) / spent,
        **percentiles,
    }


@contextmanager
def _served(policy: Policy, most: int) -> Iterator[str]:
    """The policy behind a real socket on a free port of the loopback."""
    from ...serve.run import bind, require, url
    from ...serve.settings import ServeSettings

    require()
    import uvicorn

    from ...serve.app import create_app

    settings = ServeSettings(port=0, max_batch=most)
    listening, ready = bind(settings), threading.Event()
    app = create_app(policy, settings, ready.set)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        if not ready.wait(PATIENCE):
            raise SoonerError(f"the server was not ready after {PATIENCE:g} s; try --parts offline")
        yield url(listening)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        listening.close()
