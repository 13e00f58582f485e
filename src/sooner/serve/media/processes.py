"""A few processes that decode, reused; one that is too slow is killed, a dead one replaced.

Run as a module, this is such a process: one file after the other, until nobody asks any more. It
has a limit on its memory, an alarm for each file and no secrets in its environment. It speaks JSON
and raw bytes: nothing that it says is unpickled.
"""

from __future__ import annotations

import json
import math
import os
import queue
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from multiprocessing.connection import Connection
from pkgutil import resolve_name
from typing import Any

import numpy as np
import psutil

from ...errors import SoonerError
from .sources import MediaBusyError, MediaError, MediaSettings

DECODER = "sooner.serve.media.decoders"
START_SECONDS = 60.0
"""What starting a process may take: it imports its libraries."""
MAX_TASKS = 500
"""Files after which a process is replaced, so that what leaks is given back."""
MAX_REPLY = 1 << 20
"""Bytes of a message without pixels."""
ENVIRONMENT = (
    "PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR",
)  # fmt: skip
"""Names of the environment that a decoder gets; it need not know tokens and passwords."""
SLACK = 5
"""Seconds behind its limit after which a process ends itself; a server that lives has killed it."""
OPEN_FILES = 64

Answer = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class DecodedMedia:
    """Holds what became of a file.

    Attributes:
        pictures: uint8 `[..., height, width, 3]` each.
        report: what else the decoder returned.
    """

    pictures: list[np.ndarray] = field(repr=False)
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Returns the bytes of all pixels."""
        return sum(picture.nbytes for picture in self.pictures)


class DecodeProcesses:
    """Processes that decode files; each call takes one of them. Calls come from any threads.

    Args:
        limits: of each file, and how many processes there are at most.
    """

    def __init__(self, limits: MediaSettings) -> None:
        self.limits = limits
        self._idle: queue.LifoQueue[_Process | None] = queue.LifoQueue()
        for _ in range(limits.media_workers):
            self._idle.put(None)  # one that is to be started
        self._alive: set[_Process] = set()
        self._is_closed = False

    def start(self) -> None:
        """Start one process ahead of the first file."""
        with self._borrow():
            pass

    def decode(
        self, decoder: str, data: bytes, answer: Answer | None = None, **options: Any
    ) -> DecodedMedia:
        """Decode one file; blocks.

        Args:
            decoder: a function of `decoders`, or any other's `module:name`.
            answer: of the decoder's questions.
            options: of the decoder.

        Raises:
            MediaError: the file is refused, took too long, or ended the process.
            MediaBusyError: no process came free.
        """
        name = decoder if ":" in decoder else f"{DECODER}:{decoder}"
        seconds = self.limits.media_seconds
        names = (field.name for field in fields(MediaSettings))  # a token is none of them
        limits = MediaSettings(**{name: getattr(self.limits, name) for name in names})
        try:
            with self._borrow() as process:
                if not process.tasks:
                    with process.limited(START_SECONDS):
                        process.connection.recv_bytes()
                process.tasks += 1
                with process.limited(seconds):
                    process.connection.send((name, limits, data, options))
                    pictures, reply = _receive(process.connection, limits.max_total, answer)
        except TimeoutError as error:
            raise MediaError(
                f"decoding it took more than {error.args[0]:g} s; send something smaller"
            ) from error
        except SoonerError:
            raise
        except (EOFError, OSError, ValueError, TypeError) as error:
            raise MediaError(
                "the decoder ended while it read it: it is damaged, or takes too much memory"
            ) from error
        if "error" in reply:
            raise MediaError(str(reply["error"])[:400])
        return DecodedMedia(pictures, reply["done"])

    def close(self) -> None:
        """Kill all processes; those who decode with one, or wait for one, are told."""
        self._is_closed = True
        for process in list(self._alive):
            process.kill()

    @contextmanager
    def _borrow(self) -> Iterator[_Process]:
        """Yields a process that nobody else has meanwhile; an error in the block ends it."""
        try:
            process = self._idle.get(timeout=self.limits.media_seconds)
        except queue.Empty:
            raise MediaBusyError("all processes that decode are taken; come back in 2 s") from None
        is_reusable = False
        try:
            if process is None:
                process = _Process()
                self._alive.add(process)
            if self._is_closed:
                raise MediaBusyError("the server is stopping; ask another one")
            yield process
            is_reusable = process.tasks < MAX_TASKS and not (process.is_late or self._is_closed)
        finally:
            if process is not None and not is_reusable:
                self._alive.discard(process)
                process.kill()
                process.connection.close()
                process = None
            self._idle.put(process)


class _Process:
    """One process."""

    def __init__(self) -> None:
        path = os.pathsep.join(part or os.getcwd() for part in sys.path)
        single = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        end, peer = socket.socketpair()
        with peer:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sooner.serve.media.processes", str(peer.fileno())],
                pass_fds=(peer.fileno(),),
                env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ} | single,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the server, which lets it finish
            )
        self.connection = Connection(end.detach())
        self.tasks, self.is_late = 0, False

    @contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """Kills the process if the block takes longer.

        Raises:
            TimeoutError: it did; its argument is how many seconds it had.
        """
        timer = threading.Timer(seconds, self._expire)
        timer.daemon = True
        timer.start()
        try:
            yield
        except Exception as error:
            if self.is_late:
                raise TimeoutError(seconds) from error
            raise
        finally:
            timer.cancel()

    def _expire(self) -> None:
        self.is_late = True
        self.process.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def _receive(
    connection: Connection, max_bytes: int, answer: Answer | None
) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Returns pictures that a process sends, and its last message."""
    pictures: list[np.ndarray] = []
    while True:
        reply = {**json.loads(connection.recv_bytes(MAX_REPLY))}
        if "shape" in reply:
            content = connection.recv_bytes(max_bytes)
            shape = [int(side) for side in reply["shape"]]
            pictures.append(np.frombuffer(content, np.uint8).reshape(shape))
            max_bytes -= len(content)
        elif "error" in reply or "done" in reply:
            return pictures, reply
        elif answer is None:
            raise ValueError(f"nobody answers {sorted(reply)}")
        else:
            try:
                connection.send(answer(reply))
            except MediaError as error:  # the process ends the file with it
                connection.send({"error": str(error)})


@dataclass(frozen=True)
class DecodeTask:
    """Holds one file to decode.

    Attributes:
        data: its content.
        limits: checked before anything is decoded.
        connection: to the server.
        options: of the decoder.
    """

    data: bytes = field(repr=False)
    limits: MediaSettings
    connection: Connection
    options: dict[str, Any] = field(default_factory=dict)

    def send(self, pixels: np.ndarray) -> None:
        """Send a picture, uint8 `[..., height, width, 3]`."""
        send(self.connection, {"shape": pixels.shape})
        self.connection.send_bytes(np.ascontiguousarray(pixels).data.cast("B"))

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Returns the server's answer to a question, as JSON has it.

        Raises:
            MediaError: it refuses the file.
        """
        send(self.connection, question)
        answer: dict[str, Any] = self.connection.recv()
        if "error" in answer:
            raise MediaError(answer["error"])
        return answer


def send(connection: Connection, message: dict[str, Any]) -> None:
    """Write one message to the server: JSON, in one piece."""
    connection.send_bytes(json.dumps(message).encode())


def serve(descriptor: int) -> None:
    """Decode what comes through a socket; returns when its other end is closed."""
    connection = Connection(descriptor)
    os.dup2(1, 2)  # what libraries print about a stranger's file is nothing for the server's log
    connection.send_bytes(b"ready")
    is_limited = False
    while True:
        try:
            decoder, limits, data, options = connection.recv()
        except (EOFError, OSError):
            return
        if not is_limited:
            confine(limits.media_memory)
            is_limited = True
        signal.alarm(math.ceil(limits.media_seconds) + SLACK)
        answer = _decode(decoder, DecodeTask(data, limits, connection, options))
        signal.alarm(0)
        del data
        send(connection, answer)


def _decode(decoder: str, task: DecodeTask) -> dict[str, Any]:
    try:
        return {"done": resolve_name(decoder)(task)}
    except MediaError as error:
        return {"error": str(error)}
    except MemoryError:
        limit = task.limits.media_memory >> 20
        return {"error": f"decoding it takes more than {limit} MiB of memory; send it smaller"}
    except ImportError as error:
        return {"error": f"this server can't read it: {error.name} is not installed"}


def confine(memory: int) -> None:
    """Let this process take `memory` bytes beyond what it has, write no files and leave no core."""
    if sys.platform == "linux":  # elsewhere the address space tells nothing, or has no limit
        size = psutil.Process().memory_info().vms
        resource.setrlimit(resource.RLIMIT_AS, (size + memory, size + memory))
    for kind, limit in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
        resource.setrlimit(kind, (limit, limit))
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))


if __name__ == "__main__":
    serve(int(sys.argv[1]))
