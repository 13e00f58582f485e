"""Runs `sooner parse` on given cores, and looks at what its processes take."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from sooner.errors import SoonerError

from ..cores import pinned
from ..declared import Data
from .settings import ARMS, ScaleBenchSettings

TIMEOUT = 900.0
"""Seconds after which a run counts as hung."""
INTERVAL = 0.5
"""Seconds between two looks at the processes."""
THREAD_ENV = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
STARVED = re.compile(r"parsers waited for pages ([\d.]+) s of ([\d.]+) s")
STAGES = {"ParserStage": "parser", "OCRStage": "ocr", "WriteStage": "write"}
"""Kinds of Ray's processes, by what stands in their titles."""


def run_arm(
    name: str, documents: Path, out: Path, cores: Sequence[int], settings: ScaleBenchSettings
) -> Data:
    """Parse a folder by as many workers as the arm has, each of the plain ones on its own core.

    Returns:
        `seconds` from the start to the end of the last process; `cpu`, processor seconds by kind of
        process, and `bench_cpu`, those of the bench meanwhile; `starved`, seconds in which Ray's
        parsers had no page; `digest` of all files written for people.

    Raises:
        SoonerError: a worker failed, or did not end.
    """
    workers = ARMS[name]
    command = [
        sys.executable, "-m", "sooner.cli", "parse", str(documents), "-o", str(out),
        "--model", settings.model, "--drafter", settings.drafter, "--no-overlay", "--threads", "1",
    ]  # fmt: skip
    places = [[core] for core in cores[:workers]]
    if name.startswith("ray"):
        command += ["--ray", "local", "--actors", str(workers)]
        command += ["--in-flight", str(settings.in_flight)]
        places = [[*cores[:workers]]]
    spent, began = time.process_time(), time.perf_counter()
    started = [_start(command, place) for place in places]
    watch = ProcessWatch([process.pid for process in started])
    try:
        outputs = [_wait(process) for process in started]
    finally:
        watch.stop()
        for process in started:
            process.kill()
            process.wait()
    seconds, waited = time.perf_counter() - began, STARVED.search(outputs[0])
    return {
        "seconds": seconds,
        "cpu": watch.by_kind(),
        "bench_cpu": time.process_time() - spent,
        "starved": None if waited is None else float(waited[1]),
        "digest": digest_of(out),
    }


def _start(command: Sequence[str], cores: Sequence[int]) -> subprocess.Popen[str]:
    environment = {**os.environ, **dict.fromkeys(THREAD_ENV, "1")}
    with pinned(cores):
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )


def _wait(process: subprocess.Popen[str]) -> str:
    try:
        output, _ = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise SoonerError(f"a run did not end within {TIMEOUT:g} s") from error
    if process.returncode:
        last = " ".join(output.strip().splitlines()[-3:])
        raise SoonerError(f"a run ended with {process.returncode}: {last[-500:]}")
    return output


class ProcessWatch:
    """Processor seconds of processes and all that they start, looked at until `stop`.

    Args:
        roots: process ids.
    """

    def __init__(self, roots: Sequence[int]) -> None:
        self.roots = set(roots)
        self._spent: dict[int, tuple[str, float]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def by_kind(self) -> dict[str, float]:
        """Return seconds by kind, up to the last look at each process."""
        total: dict[str, float] = defaultdict(float)
        for kind, seconds in self._spent.values():
            total[kind] += seconds
        return {kind: round(total[kind], 2) for kind in sorted(total)}

    def _watch(self) -> None:
        while not self._over.wait(INTERVAL):
            for root in self.roots:
                with suppress(psutil.Error):
                    parent = psutil.Process(root)
                    for process in (parent, *parent.children(recursive=True)):
                        with suppress(psutil.Error):
                            times = process.cpu_times()
                            kind = self._kind(process)
                            self._spent[process.pid] = kind, times.user + times.system

    def _kind(self, process: psutil.Process) -> str:
        """Return what a process is; Ray's workers get their stage's title once they work."""
        known = self._spent.get(process.pid, ("", 0.0))[0]
        if known in STAGES.values():
            return known
        if process.pid in self.roots:
            return "command"
        name = process.name()
        if name in ("raylet", "gcs_server"):
            return name
        title = " ".join(process.cmdline())
        for stage, kind in STAGES.items():
            if stage in title:
                return kind
        return "ray, other" if title.startswith("ray::") or "/ray/" in title else "ocr"


def digest_of(out: Path) -> str:
    """Return a digest of the files of a folder of results, names included; records have
    times, and are left out.
    """
    digest = hashlib.sha256()
    for file in sorted(out.rglob("*")):
        place = file.relative_to(out)
        if file.is_file() and ".sooner" not in place.parts and place.name != "manifest.jsonl":
            data = file.read_bytes()
            digest.update(f"{place.as_posix()}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:16]
