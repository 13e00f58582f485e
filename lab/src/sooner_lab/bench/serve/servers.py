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
    """

    def __init__(self, arm: str, arguments: Sequence[str]) -> None:
        self.arm, self.port = arm, 0
        self._emitted: list[str] = []
        self._ready = threading.Event()
        self._process = subprocess.Popen(
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
            output = " ".join(line.strip() for line in self._emitted[-3:])
            self.end()
            raise SoonerError(
                f"the server of '{self.arm}' was not ready after {READY:g} s: "
                f"{output or 'no word'}; "
                "leave it out of --arms, or try the same by hand"
            )

    def sleep(self) -> None:
        """Stop the process: it takes no time of a core until `wake`."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def wake(self) -> None:
        """Let it go on."""
        os.kill(self._process.pid, signal.SIGCONT)

    def end(self) -> None:
        """Have it answer what is under way and end."""
        if self._process.poll() is None:
            self.wake()
            self._process.terminate()
            try:
                self._process.wait(ENDING)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()

    def _listen(self) -> None:
        """Read what it says, to its end: a full pipe would stop it."""
        for line in self._process.stdout or ():
            self._emitted = [*self._emitted[-20:], line]
            if not self.port and (match := re.search(r"http://127\.0\.0\.1:(\d+)/v1", line)):
                self.port = int(match[1])
                self._ready.set()
        self._ready.set()


class Servers:
    """The servers of a run, all asleep but the one that is measured.

    Args:
        found: by arm.
        settings: of the bench.
        cores: of servers that are started later.
    """

    def __init__(
        self,
        servers: dict[str, ServerProcess],
        settings: ServeBenchSettings,
        cores: Sequence[int] | None,
    ) -> None:
        self._entries, self.settings, self.cores = servers, settings, cores

    @contextmanager
    def awake(self, arm: str) -> Iterator[ServerProcess]:
        """The server of an arm, while it is measured."""
        server = self._entries[arm]
        server.wake()
        try:
            yield server
        finally:
            server.sleep()

    @contextmanager
    def paced(self, arm: str, milliseconds: float) -> Iterator[ServerProcess]:
        """One more server of an arm, told how long a token may take.

        Raises:
            SoonerError: it does not start.
        """
        options = [*arguments(self.settings, arm), "--time-per-token-ms", f"{milliseconds:.3f}"]
        with pinned(self.cores):
            server = ServerProcess(arm, options)
        try:
            server.wait()
            yield server
        finally:
            server.end()


@contextmanager
def started(settings: ServeBenchSettings, cores: Sequence[int] | None) -> Iterator[Servers]:
    """A server for each arm that is one, on `cores`.

    Raises:
        SoonerError: one does not start.
    """
    with ExitStack() as ending:
        servers = {}
        with pinned(cores):
            for arm in settings.served:
                servers[arm] = ServerProcess(arm, arguments(settings, arm))
                ending.callback(servers[arm].end)
        for server in servers.values():
            server.wait()
        for server in servers.values():
            server.sleep()
        yield Servers(servers, settings, cores)


def arguments(settings: ServeBenchSettings, arm: str) -> list[str]:
    """Returns the arguments of `sooner serve` for an arm."""
    options = ["miniature" if settings.model is None else settings.model]
    for name in ("draft", "device", "dtype", "threads"):
        value = getattr(settings, name)
        options += [] if value is None else [f"--{name}", str(value)]
    if arm == "eagle":
        options += ["--head", str(settings.head)]
    rows = 1 if arm == SEQUENTIAL else settings.max_rows
    queue = max(settings.max_rows, settings.arrivals, *settings.clients)
    options += ["--method", PLAIN if arm == SEQUENTIAL else arm]
    return [*options, "--max-rows", str(rows), "--max-queue", str(queue)]
