"""Runs `sooner parse` on given cores, and looks at what its processes take."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from sooner.errors import SoonerError

from ..cores import pinned
from .settings import ScaleArm, ScaleBenchSettings

PATIENCE = 900.0
"""Seconds after which a run counts as hung."""
LOOK = 0.5
"""Seconds between two looks at the processes."""
THREAD_ENV = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
STARVED = re.compile(r"parsers waited for pages ([\d.]+) s of ([\d.]+) s")
STAGES = {"ParserStage": "parser", "OCRStage": "ocr", "WriteStage": "write"}
"""Kinds of Ray's processes, by what stands in their titles."""


@dataclass(frozen=True)
class ScaleRun:
    """One run of an arm.

    Attributes:
        arm: of `settings.ARMS`.
        repeat: of this length of runs, from 0.
        pages: that it parsed.
        seconds: from its start to the end of its last process.
        cpu: processor seconds of its processes, by kind.
        bench_cpu: those of the bench meanwhile.
        starved: seconds in which Ray's parsers had no page, as the run told.
        digest: of all files that it wrote for people, names included.
    """

    arm: str
    repeat: int
    pages: int
    seconds: float
    cpu: dict[str, float]
    bench_cpu: float
    starved: float | None
    digest: str


def run_arm(
    name: str,
    arm: ScaleArm,
    documents: Path,
    out: Path,
    cores: Sequence[int],
    settings: ScaleBenchSettings,
    **labels: Any,
) -> ScaleRun:
    """Parse a folder by as many workers as the arm has, each of the plain ones on its own core.

    Args:
        labels: `repeat` and `pages` of the run.

    Raises:
        SoonerError: a worker failed, or did not end.
    """
    command = [
        sys.executable, "-m", "sooner.cli", "parse", str(documents), "-o", str(out),
        "--model", settings.model, "--drafter", settings.drafter, "--no-overlay", "--threads", "1",
    ]  # fmt: skip
    spent, began = time.process_time(), time.perf_counter()
    if arm.is_ray:
        ray = ["--ray", "local", "--actors", str(arm.workers)]
        ray += ["--in-flight", str(settings.in_flight)]
        started = [_start([*command, *ray], cores[: arm.workers])]
    else:
        started = [_start(command, [cores[number]]) for number in range(arm.workers)]
    watch = ProcessWatch([process.pid for process in started])
    try:
        outputs = [_ended(process) for process in started]
    finally:
        watch.stop()
        for process in started:
            process.kill()
            process.wait()
    took = time.perf_counter() - began
    waited = STARVED.search(outputs[0])
    return ScaleRun(
        arm=name,
        seconds=took,
        cpu=watch.by_kind(),
        bench_cpu=time.process_time() - spent,
        starved=None if waited is None else float(waited[1]),
        digest=digest_of(out),
        **labels,
    )


def _start(command: Sequence[str], cores: Sequence[int]) -> subprocess.Popen[str]:
    environment = {**os.environ, **dict.fromkeys(THREAD_ENV, "1")}
    with pinned(cores):
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )


def _ended(process: subprocess.Popen[str]) -> str:
    try:
        output, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise SoonerError(f"a run did not end within {PATIENCE:g} s") from error
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
        """Seconds by kind, up to the last look at each process."""
        total: dict[str, float] = {}
        for kind, seconds in self._spent.values():
            total[kind] = total.get(kind, 0.0) + seconds
        return {kind: round(total[kind], 2) for kind in sorted(total)}

    def _watch(self) -> None:
        while not self._over.wait(LOOK):
            for root in self.roots:
                with suppress(psutil.Error):
                    parent = psutil.Process(root)
                    for process in (parent, *parent.children(recursive=True)):
                        with suppress(psutil.Error):
                            self._look(process)

    def _look(self, process: psutil.Process) -> None:
        times = process.cpu_times()
        known = self._spent.get(process.pid)
        is_settled = known is not None and known[0] in STAGES.values()
        kind = known[0] if known is not None and is_settled else self._kind(process)
        self._spent[process.pid] = (kind, times.user + times.system)

    def _kind(self, process: psutil.Process) -> str:
        if process.pid in self.roots:
            return "command"
        name = process.name()
        if name in ("raylet", "gcs_server"):
            return name
        title = " ".join(process.cmdline())
        for stage, kind in STAGES.items():
            if stage in title:
                return kind
        if title.startswith("ray::") or "/ray/" in title:
            return "ray, other"
        return "ocr"


def digest_of(out: Path) -> str:
    """Returns a digest of the files of a folder of results, names included; records have
    times, and are left out.
    """
    digest = hashlib.sha256()
    for file in sorted(out.rglob("*")):
        place = file.relative_to(out)
        if file.is_file() and ".sooner" not in place.parts and place.name != "manifest.jsonl":
            data = file.read_bytes()
            digest.update(f"{place.as_posix()}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:16]
