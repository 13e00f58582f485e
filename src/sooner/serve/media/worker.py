"""What runs in a process that decodes: one file after the other, until nobody asks any more.

The process has a limit on its memory, an alarm for each file, no secrets in its environment, and
speaks JSON and raw bytes: nothing that it says is unpickled.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np

from .sources import MediaError, MediaLimits

SLACK = 5
"""Seconds behind its limit after which a process ends itself; a server that lives has killed it."""
OPEN_FILES = 64


@dataclass(frozen=True)
class DecodeTask:
    """Holds one file to decode.

    Attributes:
        data: its content.
        limits: checked before anything is decoded.
        send: takes a picture, uint8 `[..., height, width, 3]`.
        ask: a question to the server and its answer, as JSON has it.
        options: of the decoder.
    """

    data: bytes = field(repr=False)
    limits: MediaLimits
    send: Callable[[np.ndarray], None]
    ask: Callable[[dict[str, Any]], dict[str, Any]]
    options: dict[str, Any] = field(default_factory=dict)


def send(connection: Connection, message: dict[str, Any]) -> None:
    """Write one message: JSON, in one piece."""
    connection.send_bytes(json.dumps(message).encode())


def serve(descriptor: int) -> None:
    """Decode what comes through a socket; returns when its other end is closed."""
    connection = Connection(descriptor)
    _quiet()
    send(connection, {"ready": True})
    is_limited = False
    while True:
        try:
            request = json.loads(connection.recv_bytes())
            data = connection.recv_bytes()
        except (EOFError, OSError):
            return
        limits = MediaLimits(**request["limits"])
        if not is_limited:
            confine(limits.memory)
            is_limited = True
        signal.alarm(math.ceil(limits.seconds) + SLACK)
        answer = _answer(connection, request, data, limits)
        signal.alarm(0)
        del data
        send(connection, answer)


def _answer(
    connection: Connection, request: dict[str, Any], data: bytes, limits: MediaLimits
) -> dict[str, Any]:
    def ask(question: dict[str, Any]) -> dict[str, Any]:
        send(connection, question)
        answer: dict[str, Any] = json.loads(connection.recv_bytes())
        if "error" in answer:
            raise MediaError(answer["error"])
        return answer

    def give(pixels: np.ndarray) -> None:
        send(connection, {"shape": pixels.shape})
        connection.send_bytes(np.ascontiguousarray(pixels).data.cast("B"))

    try:
        done = resolve_name(request["decoder"])(
            DecodeTask(data, limits, give, ask, request["options"])
        )
    except MediaError as error:
        return {"error": str(error)}
    except MemoryError:
        return {
            "error": f"decoding it takes more than {limits.memory >> 20} MiB of memory; send it "
            "smaller"
        }
    except ImportError as error:
        return {"error": f"this server can't read it: {error.name} is not installed"}
    return {"done": done}


def confine(memory: int) -> None:
    """Let this process take `memory` bytes beyond what it has, write no files and leave no core."""
    try:
        import resource
    except ImportError:  # not on this system: time is limited all the same
        return
    size = _address_space()
    if size:
        resource.setrlimit(resource.RLIMIT_AS, (size + memory, size + memory))
    for kind, limit in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
        resource.setrlimit(kind, (limit, limit))
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))


def _address_space() -> int:
    """Returns bytes that are mapped now; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _quiet() -> None:
    """What libraries print about a stranger's file is nothing for the server's log."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 2)
    os.close(silent)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
