"""A request and its answer as they go between the front and a replica, and an ASGI application in a
replica that is asked so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Headers = Sequence[tuple[bytes, bytes]]

MAX_WAITING = 1 << 20
"""Bytes of an answer that may wait to be taken before the application waits, too."""


@dataclass(frozen=True)
class PassedRequest:
    """An HTTP request, whole.

    Attributes:
        key: what decides which replica it goes to, see `affinity`.
        avoid: replicas that could not answer it.
    """

    method: str
    path: str
    query: bytes = b""
    headers: Headers = ()
    body: bytes = field(default=b"", repr=False)
    key: bytes | None = None
    avoid: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Ack:
    """The first thing that comes of a request: who answers it."""

    replica: str


@dataclass(frozen=True)
class Head:
    """The second: status and headers. Bytes of the body follow."""

    status: int
    headers: Headers


class Exchange:
    """Asks an ASGI application one request.

    Args:
        request: the request.
    """

    def __init__(self, request: PassedRequest) -> None:
        self.request = request
        self._parts: list[Head | bytes] = []
        self._size = 0
        self._changed, self._drained, self._gone = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._is_sent = self._is_whole = False

    async def run(self, app: Any) -> None:
        """Have it answered; returns when the application does."""
        request = self.request
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": request.path,
            "raw_path": request.path.encode("utf-8", "surrogateescape"),
            "query_string": request.query,
            "root_path": "",
            "headers": list(request.headers),
            "client": None,
            "server": None,
        }
        try:
            await app(scope, self._receive, self._send)
        finally:
            self._is_whole = True
            self._changed.set()

    async def pieces(self) -> AsyncIterator[Head | bytes]:
        """Yields status and headers, then the body as it comes: what waits is one piece, of whole
        ASGI messages, which for a stream are whole events.
        """
        while True:
            await self._changed.wait()
            self._changed.clear()
            parts, self._parts, self._size = self._parts, [], 0
            self._drained.set()
            body = b"".join(part for part in parts if isinstance(part, bytes))
            for part in parts:
                if isinstance(part, Head):
                    yield part
            if body:
                yield body
            if self._is_whole and not self._parts:
                return

    def hang_up(self) -> None:
        """Nobody waits for the answer any more."""
        self._gone.set()
        self._drained.set()

    async def _receive(self) -> dict[str, Any]:
        if not self._is_sent:
            self._is_sent = True
            return {"type": "http.request", "body": self.request.body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if self._gone.is_set():
            return
        if message["type"] == "http.response.start":
            self._parts.append(Head(message["status"], list(message.get("headers", ()))))
        elif message["type"] == "http.response.body":
            body = bytes(message.get("body", b""))
            self._parts.append(body)
            self._size += len(body)
        self._changed.set()
        while self._size > MAX_WAITING and not self._gone.is_set():
            self._drained.clear()
            await self._drained.wait()
