"""Clusters of this machine's loopback, of processes that are known and ended one by one."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path

import psutil

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        return int(listener.getsockname()[1])


class RayNodes:
    """A head of `cpus` CPUs, and nodes that join it; ended with `close`.

    Attributes:
        address: of the head.
        environment: what a driver needs to be let in.
    """

    def __init__(self, cpus: int = 1) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sr-"))  # sockets want short names
        self.address = f"{LOOPBACK}:{free_port()}"
        self.nodes: list[subprocess.Popen[bytes]] = []
        self._commands: dict[int, tuple[list[str], dict[str, str], Path]] = {}  # by process id
        self._tries = 2
        self.environment = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex}
        port = self.address.rpartition(":")[2]
        self._start(
            "--head", f"--port={port}", "--include-dashboard=false",
            f"--temp-dir={self.folder}", f"--ray-client-server-port={free_port()}", cpus=cpus,
        )  # fmt: skip

    def add(self, cpus: int = 1, **environment: str) -> None:
        self.wait(1)
        self._start(f"--address={self.address}", cpus=cpus, **environment)

    def _start(self, *arguments: str, cpus: int, **environment: str) -> None:
        command = [
            sys.executable, "-m", "ray.scripts.scripts", "start", "--block",
            f"--node-ip-address={LOOPBACK}", f"--num-cpus={cpus}",
            f"--object-store-memory={80 * 2**20}", "--disable-usage-stats", *arguments,
        ]  # fmt: skip
        self.nodes.append(self._run(command, environment))

    def _run(self, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        log = self.folder / f"node-{len(self._commands)}.log"
        with open(log, "wb") as output:
            node = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                env={
                    **os.environ,
                    "RAY_USAGE_STATS_ENABLED": "0",
                    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
                    "RAY_BACKEND_LOG_LEVEL": "fatal",
                    **self.environment,
                    **environment,
                },
            )
        self._commands[node.pid] = command, environment, log
        return node

    def _start_again(self) -> None:
        """Nodes that ended before they had joined: Ray gives one 30 s, too little for two busy
        cores."""
        for place, node in enumerate(self.nodes):
            command, environment, log = self._commands[node.pid]
            if node.poll() is not None and not has_joined(log) and self._tries:
                self._tries -= 1
                self.nodes[place] = self._run(command, environment)

    def wait(self, count: int, seconds: float = 120.0) -> None:
        """Until so many nodes have joined."""
        end = time.monotonic() + seconds
        while self._joined() < count:
            if time.monotonic() > end:
                logs = "".join(log.read_text() for log in self.folder.glob("node-*.log"))
                raise AssertionError(f"{self._joined()} of {count} nodes came up: {logs[-2000:]}")
            self._start_again()
            time.sleep(0.2)

    def _joined(self) -> int:
        """Nodes that said so; a raylet runs before it is known to the others."""
        return sum(has_joined(log) for _, _, log in self._commands.values())

    def raylets(self) -> list[psutil.Process]:
        """Returns the raylets of each node, in the order of their starts."""
        return [
            child for node in self.nodes for child in children(node.pid) if child.name() == "raylet"
        ]

    def actors(self, stage: str) -> list[psutil.Process]:
        """Processes of a stage's actors, such as `Parser`."""
        processes = []
        for node in self.nodes:
            for child in children(node.pid):
                with suppress(psutil.Error):
                    if f"MapBatches({stage})" in " ".join(child.cmdline()[:1]):
                        processes.append(child)
        return processes

    def close(self) -> None:
        alive = [node.pid for node in self.nodes if node.poll() is None]
        tree = [process for pid in alive for process in (psutil.Process(pid), *children(pid))]
        for process in reversed(tree):
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(tree, 10)
        for node in self.nodes:
            node.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def has_joined(log: Path) -> bool:
    return "Ray runtime started" in log.read_text(errors="replace")


def children(number: int) -> list[psutil.Process]:
    try:
        return psutil.Process(number).children(recursive=True)
    except psutil.Error:
        return []
