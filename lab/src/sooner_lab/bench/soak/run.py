"""The whole of `sooner bench soak`: a server, references, load and faults, the end, the laws."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sooner import miniatures
from sooner.provenance import provenance

from .clients import Outcomes, write_plan
from .connection import ask, connect, head, read
from .faults import SoakClient
from .laws import SoakEvents, growth, judge
from .media import contents, png, truncated, url_of
from .requests import CHAT, SoakAnswer, requests
from .server import ServerLook, SoakedServer, busy_seconds
from .settings import DOCUMENTED, PATIENCE, SETTLE_SECONDS, SoakSettings

FILL, FILL_SIDE, FILL_AT_ONCE = 170, 724, 10
"""Pictures that fill what the server keeps of pixels (256 MiB) before the load, each 1.5 MiB as
RGB, and how many a request shows."""
STREAMS = 6
"""Streams under way when the server is told to stop."""
IDLE_SECONDS = 60.0
"""What the last requests may take to leave their rows."""


def run(settings: SoakSettings, progress: Callable[[str], None] = print) -> dict[str, Any]:
    """Soak a server.

    Returns:
        `counts` of what clients did and how it ended, `broken` in words, `looks` at the server,
        `growth` of its memory, `laws`; `settings`, `provenance`.

    Raises:
        SoonerError: the server did not start.
    """
    progress("starting the server")
    limits = {"--max-queue": settings.max_queue, "--kv-cache-memory-bytes": settings.kv_memory}
    server = SoakedServer(settings.model, *(str(item) for pair in limits.items() for item in pair))
    try:
        seen = _soaked(server, settings, progress)
    finally:
        server.kill()
    laws = judge(seen)
    return {
        "bench": "soak",
        "model": settings.model,
        "settings": asdict(settings),
        "statuses": sorted(DOCUMENTED),
        **{name: value for name, value in asdict(seen).items() if name != "looks"},
        "looks": [list(asdict(item).values()) for item in seen.looks],
        "growth": growth(seen.looks),
        "children_growth": growth(seen.looks, of_children=True),
        "laws": [item.as_dict() for item in laws],
        "provenance": provenance("cpu", "float32", settings.seed),
    }


def _soaked(
    server: SoakedServer, settings: SoakSettings, progress: Callable[[str], None]
) -> SoakEvents:
    progress("answers of each request alone")
    client = _client(server, settings)
    _fill(client)
    for request in client.requests:
        urls = {name: url_of(name, client.media[name]) for name in request.media}
        reply = ask(server.address, request.path, request.encoded(urls))
        client.output.append(SoakAnswer.of(json.loads(reply.content)))
    with ThreadPoolExecutor(16) as pool:  # every thread that it will ever have is there then
        list(pool.map(lambda _: client.send_request(), range(32)))
    _settled(server)
    time.sleep(SETTLE_SECONDS)
    before = server.look()
    looks: list[ServerLook] = []
    counts, broken, kills = _load(server, client, settings, looks, progress)
    progress("what is left")
    busy = _settled(server)
    time.sleep(SETTLE_SECONDS)
    after = server.look()
    progress("the end, in the middle of streams")
    ends = _stopped(server, client)
    code: int | None = None
    with suppress(subprocess.TimeoutExpired):
        code = server.process.wait(PATIENCE)
    return SoakEvents(
        counts, broken, looks, before, after, busy, kills, ends, code, server.left(),
        server.faults(),
    )  # fmt: skip


def _client(server: SoakedServer, settings: SoakSettings) -> SoakClient:
    """Who asks first; others are made of it."""
    sample = miniatures.find("video").sample
    assert sample is not None
    return SoakClient(
        server.address, requests(), [], contents(sample, settings.seed), truncated(),
        settings.burst, random.Random(settings.seed),
    )  # fmt: skip


def _fill(client: SoakClient) -> None:
    """Fill what is kept of pixels, so that it does not look like a leak later."""
    for first in range(0, FILL, FILL_AT_ONCE):
        numbers = range(first, first + FILL_AT_ONCE)
        urls = [url_of("picture", png(FILL_SIDE, number, noise=False)) for number in numbers]
        parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        body = {"messages": [{"role": "user", "content": parts}], "max_tokens": 1}
        client.expect({200}, CHAT, json.dumps(body).encode())


def _load(
    server: SoakedServer,
    client: SoakClient,
    settings: SoakSettings,
    looks: list[ServerLook],
    progress: Callable[[str], None],
) -> tuple[list[tuple[str, str, int]], list[str], int]:
    """Clients, looks and kills until the time is over; counts, what was broken, and kills."""
    killer, over = Killer(server, client), threading.Event()
    seconds = 60 * settings.minutes
    server.began = time.monotonic()

    def watch() -> None:
        while not over.wait(settings.sample_seconds):
            looks.append(server.look())
            last = looks[-1]
            progress(f"{last.seconds / 60:.1f} min: {last.rss:.0f} MiB, {killer.kills} kills")

    def kill() -> None:
        while not over.wait(settings.kill_seconds):
            killer.kill()

    helpers = [threading.Thread(target=watch), threading.Thread(target=kill)]
    outcomes = Outcomes().as_dict()
    with tempfile.TemporaryDirectory() as folder:
        plans = [Path(folder) / f"{number}.json" for number in range(settings.processes)]
        for number, plan in enumerate(plans):
            write_plan(plan, client, seconds, settings.threads, settings.seed + number)
        command = [sys.executable, "-m", "sooner_lab.bench.soak.clients"]
        started = [
            subprocess.Popen([*command, str(plan)], stdout=subprocess.PIPE, text=True)
            for plan in plans
        ]
        for thread in helpers:
            thread.start()
        try:
            for process in started:
                output, _ = process.communicate(timeout=seconds + 2 * PATIENCE)
                counted = json.loads(output)
                outcomes = {name: outcomes[name] + counted[name] for name in outcomes}
        finally:
            over.set()
            for process in started:
                process.kill()
                process.wait()
            for thread in helpers:
                thread.join()
    outcomes = {name: outcomes[name] + killer.outcomes.as_dict()[name] for name in outcomes}
    total: Counter[tuple[str, str]] = Counter()
    for kind, end, times in outcomes["counts"]:
        total[kind, end] += times
    return [(*key, times) for key, times in sorted(total.items())], outcomes["broken"], killer.kills


class Killer:
    """Kills processes that decode, in the middle of a file.

    Attributes:
        kills: so many so far.
        outcomes: of the requests whose files these were.
    """

    def __init__(self, server: SoakedServer, client: SoakClient) -> None:
        self.server, self.client = server, client
        self.kills, self.outcomes = 0, Outcomes()

    def kill(self) -> None:
        """Send a large picture, and kill the process that begins to work."""
        before = {pid: busy_seconds(pid) for pid in self.server.decoders()}
        sender = threading.Thread(target=self.outcomes.run, args=(self.client, "damaged-picture"))
        sender.start()
        while sender.is_alive():
            for pid in self.server.decoders():
                if busy_seconds(pid) > before.get(pid, 0.0) + 0.02 and pid in before:
                    with suppress(ProcessLookupError):
                        _kill(pid)
                        self.kills += 1
                    sender.join()
                    return
            time.sleep(0.005)


def _kill(pid: int) -> None:
    import os
    import signal

    os.kill(pid, signal.SIGKILL)


def _settled(server: SoakedServer) -> float | None:
    """Seconds until nothing runs or waits; `None` if that never comes."""
    began = time.monotonic()
    while (waited := time.monotonic() - began) < IDLE_SECONDS:
        health = json.loads(ask(server.address, "/health", None).content)
        if health["status"] == "ok" and not health["running"] and not health["waiting"]:
            return waited
        time.sleep(0.2)
    return None


def _stopped(server: SoakedServer, client: SoakClient) -> list[str]:
    """Tell the server to stop while it sends streams; how these end."""
    begun = threading.Barrier(STREAMS + 1, timeout=PATIENCE)
    clips = [i for i, item in enumerate(client.requests) if item.name == "chat clip"]

    def stream(number: int) -> str:
        index = clips[number % len(clips)]
        body = client.body(index, stream=True)
        try:
            with connect(server.address) as connection:
                connection.sendall(head(CHAT, len(body)) + body)
                return client.judged(index, read(connection, on_head=begun.wait), True)
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:300]

    with ThreadPoolExecutor(STREAMS) as pool:
        ends = [pool.submit(stream, number) for number in range(STREAMS)]
        begun.wait()
        server.stop()
        return [item.result() for item in ends]
