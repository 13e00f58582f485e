"""HTTP as rude clients speak it: a socket, bytes, and the answer if there is one."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPResponse
from typing import Any

from .settings import PATIENCE

PIECE = 1 << 16
SMALL = 4096
"""Bytes of the buffer of a client that reads slowly."""


@dataclass(frozen=True)
class Reply:
    """An answer that came whole."""

    status: int
    content: bytes = field(repr=False)
    headers: dict[str, str] = field(repr=False)


def connect(address: str, slowly: bool = False) -> socket.socket:
    """A connection to `http://host:port`.

    Args:
        slowly: with the smallest of buffers, so that who reads nothing holds the server up.
    """
    host, port = address.removeprefix("http://").split(":")
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if slowly:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        made.settimeout(PATIENCE)
        made.connect((host, int(port)))
    except BaseException:
        made.close()
        raise
    return made


def head(path: str, length: int | None, host: str = "localhost", method: str = "POST") -> bytes:
    """The head of a request on a connection of its own; without a length it comes in chunks."""
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return (
        f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\n{framing}\r\n\r\n"
    ).encode()


def read(
    connection: socket.socket,
    pauses: list[float] | None = None,
    on_head: Callable[[], object] = lambda: None,
) -> Reply:
    """The answer.

    Args:
        pauses: seconds without reading, before each of the first pieces.
        on_head: called once the status is there.

    Raises:
        OSError: reset, or nothing came for too long.
        http.client.HTTPException: cut off in the middle.
    """
    response = HTTPResponse(connection)
    try:
        response.begin()
        on_head()
        content = bytearray()
        for pause in pauses or ():
            time.sleep(pause)
            content += response.read1(PIECE)
        content += response.read()
        return Reply(response.status, bytes(content), dict(response.headers))
    finally:
        response.close()


def ask(address: str, path: str, body: bytes | None, **options: Any) -> Reply:
    """Send a request and read its answer.

    Args:
        body: `None` is a GET.
        options: `host` of the head, and `pauses` in reading.
    """
    pauses = options.pop("pauses", None)
    with connect(address, slowly=pauses is not None) as connection:
        method = "GET" if body is None else "POST"
        connection.sendall(head(path, len(body or b""), method=method, **options) + (body or b""))
        return read(connection, pauses)
