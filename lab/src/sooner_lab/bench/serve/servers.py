"""Servers of the arms: a process each, stopped by a signal while another one is measured."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from sooner.errors import SoonerError

from ..cores import pinned
from .settings import PLAIN, SEQUENTIAL, ServeBenchSettings

READY = 180.0
"""Seconds that a server may take to load its model and answer a request of its own."""
ENDING = 20.0


class ServerProcess:
    """`sooner serve` on a free port of the loopback.

    Attributes:
        arm: that it is.
        port: of it.
        output: lines that it wrote.
        process: of it.
    """

    def __init__(self, arm: str, arguments: Sequence[str]) -> None:
        self.arm, self.port = arm, 0
        self.output: list[str] = []
        self._ready = threading.Event()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sooner.cli", "serve", *arguments, "--port", "0"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        threading.Thread(target=self._listen, daemon=True).start()

    def wait(self) -> None:
        """Until it takes requests.

        Raises:
            SoonerError: it ended, or was not ready in time; tells what it said last.
        """
        self._ready.wait(READY)
        if not self.port:
            output = " ".join(line.strip() for line in self.output[-3:])
            self.end()
            raise SoonerError(
                f"the server of '{self.arm}' was not ready after {READY:g} s: "
                f"{output or 'no word'}; try `sooner serve` with its model by hand"
            )

    def sleep(self) -> None:
        """Stop the process: it takes no time of a core until `wake`."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def wake(self) -> None:
        """Let it go on."""
        os.kill(self.process.pid, signal.SIGCONT)

    def end(self) -> None:
        """Have it answer what is under way and end."""
        if self.process.poll() is None:
            self.wake()
            self.process.terminate()
            try:
                self.process.wait(ENDING)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()

    def _listen(self) -> None:
        """Read what it says, to its end: a full pipe would stop it."""
        for line in self.process.stdout or ():
            self.output.append(line)
            if not self.port and (match := re.search(r"http://127\.0\.0\.1:(\d+)/v1", line)):
                self.port = int(match[1])
                self._ready.set()
        self._ready.set()


class Servers:
    """A server for each arm that is one, all asleep but the one that is measured.

    Args:
        settings: of the bench.
        cores: of the servers.

    Raises:
        SoonerError: one does not start; on entering.
    """

    def __init__(self, settings: ServeBenchSettings, cores: Sequence[int] | None) -> None:
        self.settings, self.cores = settings, cores
        self._entries: dict[str, ServerProcess] = {}
        self._ending = ExitStack()

    def __enter__(self) -> Servers:
        with self._ending:
            for arm in self.settings.served:
                self._entries[arm] = self._start(arm)
                self._ending.callback(self._entries[arm].end)
            for server in self._entries.values():
                server.wait()
                server.sleep()
            self._ending = self._ending.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    @contextmanager
    def awake(self, arm: str) -> Iterator[ServerProcess]:
        """Wake the server of an arm while it is measured."""
        server = self._entries[arm]
        server.wake()
        try:
            yield server
        finally:
            server.sleep()

    def _start(self, arm: str) -> ServerProcess:
        with pinned(self.cores):
            return ServerProcess(arm, arguments(self.settings, arm))


def arguments(settings: ServeBenchSettings, arm: str) -> list[str]:
    """Returns the arguments of `sooner serve` for an arm."""
    options = ["miniature" if settings.model is None else settings.model]
    for name in ("draft", "device", "dtype", "threads"):
        value = getattr(settings, name)
        options += [] if value is None else [f"--{name}", str(value)]
    if arm == "eagle":
        options += ["--head", str(settings.head)]
    rows = 1 if arm == SEQUENTIAL else settings.max_rows
    queue = max(settings.max_rows, *settings.clients)
    options += ["--method", PLAIN if arm == SEQUENTIAL else arm]
    return [*options, "--max-rows", str(rows), "--max-queue", str(queue)]
