"""The whole of `sooner bench soak`: a server, references, load and faults, the end, the laws."""

from __future__ import annotations

import json
import multiprocessing
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, pairwise
from math import sqrt
from statistics import median
from typing import Any

import psutil

from sooner import miniatures
from sooner.errors import SoonerError

from ..declared import Data
from ..run import Recorder
from .clients import BROKEN, Outcomes, SoakClient, ask, connect, head, read, run_clients
from .requests import CHAT, contents, media_part, png, read_answer, requests, truncated, url_of
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
DECODER = "sooner.serve.media.worker"
"""What the command line of a process that decodes names."""
FAULTS = re.compile(r"Traceback|ERROR|CRITICAL|Error:")
"""What a healthy server's log has none of."""
MIB = 2**20


def run(settings: SoakSettings, progress: Callable[[str], None] = print) -> Data:
    """Soak a server.

    Returns:
        `counts` of what clients did and how it ended (kind, end, times), some `broken` laws in
        words, `looks` at the server under load, and idle `before` and `after` it; `busy`, seconds
        until no row and no request was left; `kills` of processes while they decoded; `ends` of the
        streams that were under way when the server was told to stop, its `exit_code`, the processes
        that it `left`, and `faults` in its log; `growth` of its memory; `laws`.

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
        server.kill()
    laws = judge(seen)
    children = growth(seen["looks"], of_children=True)
    figures = {"growth": growth(seen["looks"]), "children_growth": children, "laws": laws}
    looks = [list(look.values()) for look in seen["looks"]]
    return recorder.add(**{**seen, "looks": looks}, statuses=sorted(DOCUMENTED), **figures)


class SoakedServer:
    """`sooner serve MODEL` in a process of its own, looked at from outside.

    Args:
        arguments: behind `serve`.

    Attributes:
        address: `http://host:port`.
        output: lines that it wrote.
        seen: every process that it was seen to have started.

    Raises:
        SoonerError: a server that did not start.
    """

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "sooner.cli", "serve", *arguments, "--port", "0"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.info = psutil.Process(self.process.pid)
        self.output: list[str] = []
        self.seen: set[psutil.Process] = set()
        self.began = time.monotonic()
        self.address = self._address()
        threading.Thread(target=self._listen, daemon=True).start()

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

    def decoders(self) -> dict[psutil.Process, float]:
        """Return those of its processes that decode media, and the seconds that each has worked."""
        working = {}
        for child in self.info.children():
            with suppress(psutil.Error):
                if any(DECODER in part for part in child.cmdline()):
                    times = child.cpu_times()
                    working[child] = times.user + times.system
        return working

    def health(self) -> dict[str, Any]:
        """Return what it says of itself."""
        answer: dict[str, Any] = json.loads(ask(self.address, "/health", None).content)
        return answer

    def kill(self) -> None:
        """End it in any case."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def _address(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line)
            if match := re.search(r"http://\S+(?=/v1)", line):
                return match[0]
        words = " ".join(self.output)[-500:].strip()
        raise SoonerError(f"the server ended with {self.process.wait()}: {words}")

    def _listen(self) -> None:
        self.output.extend(self.process.stdout or ())


def resident(process: psutil.Process) -> float:
    """Return the resident memory of a process in MiB; 0 if it is gone."""
    with suppress(psutil.Error):
        return float(process.memory_info().rss) / MIB
    return 0.0


def _soaked(
    server: SoakedServer, settings: SoakSettings, progress: Callable[[str], None]
) -> dict[str, Any]:
    progress("answers of each request alone")
    sample = miniatures.find("video").sample
    assert sample is not None
    client = SoakClient(
        server.address, requests(), [], contents(sample, settings.seed), truncated(),
        settings.burst, random.Random(settings.seed),
    )  # fmt: skip
    _fill(client)
    for request in client.requests:
        urls = {name: url_of(name, client.media[name]) for name in request.media}
        reply = ask(server.address, request.path, request.encoded(urls))
        client.output.append(read_answer(json.loads(reply.content)))
    with ThreadPoolExecutor(16) as pool:  # every thread that it will ever have is there then
        list(pool.map(lambda _: client.well_formed(), range(32)))
    _idle_seconds(server)
    time.sleep(SETTLE_SECONDS)
    seen: dict[str, Any] = {"before": server.look()}
    seen |= _load(server, client, settings, progress)
    progress("what is left")
    seen["busy"] = _idle_seconds(server)
    time.sleep(SETTLE_SECONDS)
    seen["after"] = server.look()
    progress("the end, in the middle of streams")
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
        body = {"messages": [{"role": "user", "content": parts}], "max_tokens": 1}
        client.expect({200}, CHAT, json.dumps(body).encode())


def _load(
    server: SoakedServer,
    client: SoakClient,
    settings: SoakSettings,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Run clients, looks and kills until the time is over."""
    looks: list[dict[str, Any]] = []
    killer, over = Killer(server, replace(client, draw=random.Random(0))), threading.Event()
    seconds = 60 * settings.minutes
    server.began = time.monotonic()

    def watch() -> None:
        while not over.wait(settings.sample_seconds):
            looks.append(server.look())
            last = looks[-1]
            progress(f"{last['seconds'] / 60:.1f} min: {last['rss']:.0f} MiB, {killer.kills} kills")

    def kill() -> None:
        while not over.wait(settings.kill_seconds):
            killer.kill()

    helpers = [threading.Thread(target=watch), threading.Thread(target=kill)]
    counts: Counter[tuple[str, str]] = Counter()
    broken: list[str] = []
    # Leaving this pool ends its processes, whatever ends the bench.
    with multiprocessing.get_context("spawn").Pool(settings.processes) as pool:
        loads = [
            pool.apply_async(
                run_clients, (client, seconds, settings.threads, settings.seed + number)
            )
            for number in range(settings.processes)
        ]
        for thread in helpers:
            thread.start()
        try:
            for load in loads:
                done, words = load.get(timeout=seconds + 2 * TIMEOUT)
                counts += done
                broken += words
        finally:
            over.set()
            for thread in helpers:
                thread.join()
    counts += killer.outcomes.counts
    broken += killer.outcomes.broken
    rows = [(*key, times) for key, times in sorted(counts.items())]
    return {"counts": rows, "broken": broken, "looks": looks, "kills": killer.kills}


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
        before = self.server.decoders()
        sender = threading.Thread(target=self.outcomes.run, args=(self.client, "damaged-picture"))
        sender.start()
        while sender.is_alive():
            for process, seconds in self.server.decoders().items():
                if process in before and seconds > before[process] + 0.02:
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
                        self.kills += 1
                    sender.join()
                    return
            time.sleep(0.005)


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
        body = client.body(index, stream=True)
        try:
            with connect(server.address) as connection:
                connection.sendall(head(CHAT, len(body)) + body)
                return client.judge(index, read(connection, on_head=begun.wait), True)
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
    with its 95 % interval (P. K. Sen, Estimates of the regression coefficient based on Kendall's
    tau, 1968, section 6); infinite with fewer than three points.
    """
    kind = "children_rss" if of_children else "rss"
    points = [(look["seconds"] / 60, look[kind]) for look in looks[len(looks) // WARM :]]
    points = _medians(points)
    slopes = sorted((second[1] - first[1]) / (second[0] - first[0])
                    for first, second in combinations(points, 2))  # fmt: skip
    count = len(points)
    if count < 3:
        return {"slope": 0.0, "low": float("-inf"), "high": float("inf")}
    reach = 1.96 * sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low, high = int((len(slopes) - reach) / 2), int((len(slopes) + reach) / 2) + 1
    return {
        "slope": median(slopes),
        "low": slopes[low] if low >= 0 else float("-inf"),
        "high": slopes[high] if high < len(slopes) else float("inf"),
    }


def _medians(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the medians of equal parts of the time; parts without a point are left out."""
    if not points:
        return []
    begin, end = points[0][0], points[-1][0]
    width = (end - begin) / WINDOWS or 1.0
    edges = [begin + number * width for number in range(WINDOWS)] + [float("inf")]
    parts = [[point for point in points if low <= point[0] < high] for low, high in pairwise(edges)]
    return [(median(x for x, _ in part), median(y for _, y in part)) for part in parts if part]


def judge(seen: Data) -> list[Data]:
    """Return every law in words (`law`), whether it `holds`, and the figures (`report`).

    Args:
        seen: what `run` returns of a soak.
    """
    acts, ends = 0, Counter[str]()
    for _, end, times in seen["counts"]:
        acts += times
        ends[end] += times
    broken, answered, killed = ends[BROKEN], ends["answered"], ends["400 decoder killed"]
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
            "files are lost with a killed decoder only, no more than it and its queue had",
            seen["kills"] > 0 and killed <= 2 * seen["kills"],
            f"{seen['kills']} kills, {killed} requests refused for them",
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
