"""A client that is refused while it still sends its body reads the refusal, over a socket."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from serve.chatting import CHAT, listening, scripted
from serve.robots import WAIT
from sooner.serve import http

pytestmark = pytest.mark.slow

MAX_BODY, PIECE = 200_000, 50_000
"""Bytes that the server takes; of one send."""


@contextmanager
def server(**settings: Any) -> Iterator[str]:
    with (
        scripted() as service,
        listening(service, settings={"max_body": MAX_BODY, **settings}) as where,
    ):
        yield where


def connected(address: str) -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=WAIT)


def head(size: int | None, path: str = CHAT, more: str = "") -> bytes:
    """Returns the head of a request whose body has `size` bytes; `None` comes in chunks."""
    length = "Transfer-Encoding: chunked" if size is None else f"Content-Length: {size}"
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{more}{length}\r\n\r\n".encode()


def read(connection: socket.socket, is_all: bool = True) -> tuple[int, dict[str, Any]]:
    """Status and error of an answer, and nothing behind it.

    Args:
        is_all: the connection is closed behind it.
    """
    data = b""
    while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < _length(data):
        piece = connection.recv(1 << 16)
        assert piece, data
        data += piece
    if is_all:
        assert connection.recv(1) == b""
    line, _, rest = data.partition(b"\r\n")
    return int(line.split()[1]), json.loads(rest.partition(b"\r\n\r\n")[2])["error"]


def _length(data: bytes) -> int:
    lines = data.partition(b"\r\n\r\n")[0].lower().split(b"\r\n")
    return next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))


@pytest.mark.parametrize("declared", [True, False])
def test_who_sends_all_of_it_before_reading_reads_the_refusal(
    declared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long that takes, while something comes: many clients share one machine."""
    monkeypatch.setattr(http, "LINGER_SECONDS", 0.4)
    size = 24 * PIECE
    with server() as address, connected(address) as connection:
        connection.sendall(head(size if declared else None))
        for _ in range(size // PIECE):
            piece = b"x" * PIECE
            connection.sendall(piece if declared else b"%x\r\n%b\r\n" % (PIECE, piece))
            time.sleep(0.04)
        if not declared:
            connection.sendall(b"0\r\n\r\n")
        assert read(connection)[0] == 413


def test_a_trickle_ends_with_the_time_for_bodies() -> None:
    with server(body_seconds=0.5) as address, connected(address) as connection:
        connection.sendall(head(4 * MAX_BODY))
        began, is_open = time.monotonic(), True
        while is_open:
            assert time.monotonic() - began < WAIT
            time.sleep(0.02)
            try:
                connection.sendall(b"x")
            except OSError:
                is_open = False


@pytest.mark.parametrize(
    ("path", "more", "status"),
    [("/v1/nothing", "", 404), (CHAT, "Origin: https://evil.example\r\n", 403)],
)
def test_every_refusal_of_an_unread_body_is_read(path: str, more: str, status: int) -> None:
    with server() as address, connected(address) as connection:
        connection.sendall(head(MAX_BODY, path, f"Connection: close\r\n{more}"))
        for _ in range(MAX_BODY // PIECE):
            connection.sendall(b"x" * PIECE)
            time.sleep(0.02)
        assert read(connection)[0] == status
