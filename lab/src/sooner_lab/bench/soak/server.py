"""The process that is soaked, from outside: started, looked at through /proc, told to stop."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from sooner.errors import SoonerError

PROC = Path("/proc")
DECODER = "sooner.serve.media.worker"
"""What the command line of a process that decodes names."""
FAULTS = re.compile(r"Traceback|ERROR|CRITICAL|Error:")
"""What a healthy server's log has none of."""


@dataclass(frozen=True)
class ServerLook:
    """A server at a moment; MiB are 2^20 bytes.

    Attributes:
        seconds: since the load began.
        rss, children_rss: resident memory of the server, and of all its processes, in MiB.
        descriptors, threads, children: how many it has open, and processes.
    """

    seconds: float
    rss: float
    children_rss: float
    descriptors: int
    threads: int
    children: int


class SoakedServer:
    """`sooner serve MODEL` in a process of its own.

    Args:
        arguments: behind `serve`.

    Attributes:
        address: `http://host:port`.
        said: lines that it wrote.
        seen: every process that it was seen to have started.

    Raises:
        SoonerError: a system without /proc, or a server that did not start.
    """

    def __init__(self, *arguments: str) -> None:
        if not (PROC / "self" / "status").exists():
            raise SoonerError("a soak looks at processes through /proc; run it on Linux")
        command = [sys.executable, "-m", "sooner.cli", "serve", *arguments, "--port", "0"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.output: list[str] = []
        self.seen: set[int] = set()
        self.began = time.monotonic()
        self.address = self._address()
        threading.Thread(target=self._listen, daemon=True).start()

    def look(self) -> ServerLook:
        """The server as it is now."""
        pid, children = self.process.pid, self.children()
        self.seen.update(children)
        tasks = len(os.listdir(PROC / str(pid) / "task"))
        files = len(os.listdir(PROC / str(pid) / "fd"))
        child_memory = sum(resident(child) for child in children)
        now = time.monotonic() - self.began
        return ServerLook(now, resident(pid), child_memory, files, tasks, len(children))

    def children(self) -> list[int]:
        """Its processes."""
        pids: list[int] = []
        for task in (PROC / str(self.process.pid) / "task").iterdir():
            text = text_of(task / "children")
            pids += [int(child) for child in text.split()]
        return pids

    def decoders(self) -> list[int]:
        """Returns those of its processes that decode media."""
        return [pid for pid in self.children() if DECODER in text_of(PROC / str(pid) / "cmdline")]

    def faults(self) -> list[str]:
        """Lines of its log that no healthy server writes."""
        return [line.rstrip() for line in self.output if FAULTS.search(line)]

    def left(self) -> list[int]:
        """Processes that it started and that are still there."""
        return [
            pid for pid in sorted(self.seen) if "sooner" in text_of(PROC / str(pid) / "cmdline")
        ]

    def stop(self) -> None:
        """Tell it to stop; returns at once."""
        self.process.send_signal(signal.SIGTERM)

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
        raise SoonerError(
            f"the server ended with {self.process.wait()}: {' '.join(self.output)[-500:].strip()}"
        )

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line)


def resident(pid: int) -> float:
    """Resident memory of a process in MiB; 0 if it is gone."""
    match = re.search(r"VmRSS:\s+(\d+) kB", text_of(PROC / str(pid) / "status"))
    return int(match[1]) / 1024 if match else 0.0


def busy_seconds(pid: int) -> float:
    """Processor time that a process has taken."""
    fields = text_of(PROC / str(pid) / "stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def text_of(path: Path) -> str:
    """A file of /proc; empty once its process is gone."""
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
