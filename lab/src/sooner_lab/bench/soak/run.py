"""The whole of `sooner bench soak`: a server, references, load, the end, the laws."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from statistics import median
from typing import Any

import httpx
import psutil
from scipy.stats import theilslopes

from sooner import miniatures

from ..declared import Data
from ..run import Progress, Recorder
from ..serve.servers import ServerProcess
from .clients import BROKEN, SoakClient, open_client
from .requests import CHAT, contents, media_part, png, read_answer, requests, url_of
from .settings import (
    DOCUMENTED,
    MAX_SLOPE,
    SETTLE_SECONDS,
    SPARE,
    TIMEOUT,
    WARM,
    WINDOWS,
    SoakSettings,
)

FILL, FILL_SIDE, FILL_AT_ONCE = 170, 724, 10
"""Pictures that fill what the server keeps of pixels (256 MiB) before the load, each 1.5 MiB as
RGB, and how many a request shows."""
STREAMS = 6
"""Streams under way when the server is told to stop."""
IDLE_SECONDS = 60.0
"""What the last requests may take to leave their rows."""
FAULTS = re.compile(r"Traceback|ERROR|CRITICAL|Error:")
"""What a healthy server's log has none of."""
MIB = 2**20


def run(settings: SoakSettings, progress: Progress = print) -> Data:
    """Soak a server.

    Returns:
        `counts` of what clients did and how it ended (kind, end, times), some `broken` laws in
        words, `looks` at the server under load, and idle `before` and `after` it; `busy`, seconds
        until no row and no request was left; `ends` of the streams that were under way when the
        server was told to stop, its `exit_code`, the processes that it `left`, and `faults` in its
        log; `growth` of its memory; `laws`.

    Raises:
        SoonerError: the server did not start.
    """
    recorder = Recorder("soak", settings, model=settings.model)
    recorder.origin("cpu", "float32", settings.seed)
    progress("starting the server")
    limits = ["--max-queue", str(settings.max_queue)]
    limits += ["--kv-cache-memory-bytes", settings.kv_memory]
    server = SoakedServer(settings.model, *limits)
    try:
        seen = _soaked(server, settings, progress)
    finally:
        server.end()
    laws = judge(seen)
    children = growth(seen["looks"], of_children=True)
    figures = {"growth": growth(seen["looks"]), "children_growth": children, "laws": laws}
    looks = [list(look.values()) for look in seen["looks"]]
    return recorder.add(**{**seen, "looks": looks}, statuses=sorted(DOCUMENTED), **figures)


class SoakedServer(ServerProcess):
    """`sooner serve MODEL` in a process of its own, looked at from outside.

    Args:
        arguments: behind `serve`.

    Attributes:
        address: `http://host:port`.
        seen: every process that it was seen to have started.
        began: when the load began.

    Raises:
        SoonerError: a server that did not start.
    """

    def __init__(self, *arguments: str) -> None:
        super().__init__(arguments[0], arguments)
        self.info = psutil.Process(self.process.pid)
        self.seen: set[psutil.Process] = set()
        self.began = time.monotonic()
        self.wait()
        self.address = f"http://127.0.0.1:{self.port}"

    def look(self) -> dict[str, Any]:
        """Return the server as it is now.

        `seconds` since the load began, `rss` and `children_rss` (resident memory of the server and
        of all its processes, MiB), `descriptors`, `threads`, `children`.
        """
        children = self.info.children()
        self.seen.update(children)
        return {
            "seconds": time.monotonic() - self.began,
            "rss": self.info.memory_info().rss / MIB,
            "children_rss": sum(resident(child) for child in children),
            "descriptors": self.info.num_fds(),
            "threads": self.info.num_threads(),
            "children": len(children),
        }

    def health(self) -> dict[str, Any]:
        """Return what it says of itself."""
        answer: dict[str, Any] = httpx.get(f"{self.address}/health", trust_env=False).json()
        return answer


def resident(process: psutil.Process) -> float:
    """Return the resident memory of a process in MiB; 0 if it is gone."""
    with suppress(psutil.Error):
        return float(process.memory_info().rss) / MIB
    return 0.0


def _soaked(server: SoakedServer, settings: SoakSettings, progress: Progress) -> Data:
    progress("answers of each request alone")
    sample = miniatures.find("video").sample
    assert sample is not None
    client = SoakClient(
        server.address, requests(), [], contents(sample, settings.seed), settings.burst,
        random.Random(settings.seed),
    )  # fmt: skip
    with client.http:
        _fill(client)
        for request in client.requests:
            urls = {name: url_of(name, client.media[name]) for name in request.media}
            url = server.address + CHAT
            reply = client.http.post(url, content=request.encoded(urls))
            client.output.append(read_answer(reply.json()))
        with ThreadPoolExecutor(16) as pool:  # every thread that it will ever have is there then
            list(pool.map(lambda _: client.ask(), range(32)))
    client.http = open_client()  # no connection is open while the server is looked at idle
    _idle_seconds(server)
    time.sleep(SETTLE_SECONDS)
    seen: Data = {"before": server.look()}
    with client.http:
        seen["looks"] = _load(server, client, settings, progress)
    seen["counts"] = [(*key, times) for key, times in sorted(client.counts.items())]
    seen["broken"] = client.broken
    progress("what is left")
    seen["busy"] = _idle_seconds(server)
    time.sleep(SETTLE_SECONDS)
    seen["after"] = server.look()
    progress("the end, in the middle of streams")
    client.http = open_client()
    with client.http:
        seen |= {"ends": _stopped(server, client), "exit_code": None}
    with suppress(subprocess.TimeoutExpired):
        seen["exit_code"] = server.process.wait(TIMEOUT)
    seen["left"] = sorted(child.pid for child in server.seen if child.is_running())
    seen["faults"] = [line.rstrip() for line in server.output if FAULTS.search(line)]
    return seen


def _fill(client: SoakClient) -> None:
    """Fill what is kept of pixels, so that it does not look like a leak later."""
    for first in range(0, FILL, FILL_AT_ONCE):
        pictures = [png(FILL_SIDE, first + number, noise=False) for number in range(FILL_AT_ONCE)]
        parts = [media_part("picture", url_of("picture", picture)) for picture in pictures]
        message = {"role": "user", "content": parts}
        client.expect({200}, {"messages": [message], "max_tokens": 1})


def _load(
    server: SoakedServer, client: SoakClient, settings: SoakSettings, progress: Progress
) -> list[Data]:
    """Run clients until the time is over; returns looks at the server meanwhile."""
    looks: list[Data] = []
    over, seconds = threading.Event(), 60 * settings.minutes
    server.began = time.monotonic()

    def watch() -> None:
        while not over.wait(settings.sample_seconds):
            looks.append(server.look())
            progress(f"{looks[-1]['seconds'] / 60:.1f} min: {looks[-1]['rss']:.0f} MiB")

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        client.run(seconds, settings.clients, settings.seed)
    finally:
        over.set()
        watcher.join()
    return looks


def _idle_seconds(server: SoakedServer) -> float | None:
    """Seconds until nothing runs or waits; `None` if that never comes."""
    began = time.monotonic()
    while (waited := time.monotonic() - began) < IDLE_SECONDS:
        health = server.health()
        if health["status"] == "ok" and not health["running"] and not health["waiting"]:
            return waited
        time.sleep(0.2)
    return None


def _stopped(server: SoakedServer, client: SoakClient) -> list[str]:
    """Tell the server to stop while it sends streams; returns how these end."""
    begun = threading.Barrier(STREAMS + 1, timeout=TIMEOUT)
    clips = [i for i, item in enumerate(client.requests) if item.name == "chat clip"]

    def stream(number: int) -> str:
        index = clips[number % len(clips)]
        try:
            return client.send(index, client.body(index, stream=True), True, on_head=begun.wait)
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:300]

    with ThreadPoolExecutor(STREAMS) as pool:
        ends = [pool.submit(stream, number) for number in range(STREAMS)]
        begun.wait()
        server.process.send_signal(signal.SIGTERM)
        return [item.result() for item in ends]


def growth(looks: Sequence[dict[str, Any]], of_children: bool = False) -> dict[str, float]:
    """Return MiB a minute behind the first sixth of a load: `slope`, from `low` to `high`.

    However memory jumps, this is Theil and Sen's slope of the medians of equal parts of the time,
    with its 95 % interval; infinite with fewer than three points.
    """
    kind = "children_rss" if of_children else "rss"
    points = [(look["seconds"] / 60, look[kind]) for look in looks[len(looks) // WARM :]]
    points = _medians(points)
    if len(points) < 3:
        return {"slope": 0.0, "low": float("-inf"), "high": float("inf")}
    minutes, sizes = zip(*points, strict=True)
    slope, _, low, high = theilslopes(sizes, minutes)
    return {"slope": float(slope), "low": float(low), "high": float(high)}


def _medians(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the medians of equal parts of the time; parts without a point are left out."""
    if not points:
        return []
    begin, end = points[0][0], points[-1][0]
    width = (end - begin) / WINDOWS or 1.0
    parts: dict[int, list[tuple[float, float]]] = {}
    for point in points:
        parts.setdefault(min(int((point[0] - begin) / width), WINDOWS - 1), []).append(point)
    return [(median(x for x, _ in part), median(y for _, y in part)) for part in parts.values()]


def judge(seen: Data) -> list[Data]:
    """Return every law in words (`law`), whether it `holds`, and the figures (`report`).

    Args:
        seen: what `run` returns of a soak.
    """
    acts, ends = 0, Counter[str]()
    for _, end, times in seen["counts"]:
        acts += times
        ends[end] += times
    broken, answered = ends[BROKEN], ends["answered"]
    before, after, busy, grown = seen["before"], seen["after"], seen["busy"], growth(seen["looks"])
    changes = ", ".join(
        f"{word} {before[name]} → {after[name]}"
        for word, name in (
            ("descriptors", "descriptors"), ("threads", "threads"), ("processes", "children"),
        )
    )  # fmt: skip
    stops, code, left = seen["ends"], seen["exit_code"], seen["left"]
    laws = [
        (
            "every request gets its whole answer, or a refusal that the documentation has; every "
            "answer is the one of the same request alone, bit for bit",
            not broken and answered > 0,
            f"{acts} acts of clients, {answered} answers, {broken} broken",
        ),
        (
            "idle, no row is taken and nobody waits",
            busy is not None,
            "never" if busy is None else f"{busy:.1f} s after the last client",
        ),
        (
            "idle, no descriptor, thread or process is left over",
            all(after[name] <= before[name] + SPARE for name in ("descriptors", "threads"))
            and after["children"] <= max(before["children"], 2),
            changes,
        ),
        (
            f"once warm, memory grows by {MAX_SLOPE:g} MiB a minute at most (upper end)",
            grown["high"] <= MAX_SLOPE,
            f"{grown['slope']:+.2f} MiB a minute ({grown['low']:+.2f} to {grown['high']:+.2f})",
        ),
        (
            "told to stop in the middle of streams, it ends them, exits with 0 and leaves nothing",
            code == 0 and bool(stops) and set(stops) == {"answered"} and not left,
            f"streams: {', '.join(stops) or 'none'}; exit code {code}; {len(left)} processes left",
        ),
        ("its log has no fault", not seen["faults"], f"{len(seen['faults'])} lines"),
    ]
    return [{"law": law, "holds": bool(holds), "report": report} for law, holds, report in laws]
