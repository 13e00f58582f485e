"""Request bodies: limited before they are read, and drained where they are refused.

A client whose connection is closed while it still sends never sees the response.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Request
from starlette.requests import ClientDisconnect

from .refusal import RefusedError, too_large, too_many_bytes, too_slow
from .settings import ServerSettings

LINGER, LINGER_SECONDS = 8, 5.0
"""A refused body is read and thrown away if it has no more than this many times the largest one
that is taken, for as long as this."""


class Bodies:
    """Reads bodies within the limits of a server.

    Args:
        settings: `max_body` bytes of one body, `max_bytes` of all that are held at a time,
            `body_seconds` that sending one may take.

    Attributes:
        held: bytes of all bodies that are being read, or were and are still in use.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.held = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """The body of a request; its bytes count until the context ends.

        A declared length counts, and is refused, before anything is read.

        Raises:
            RefusedError: 413 if it is larger than allowed, 429 if there is no room for it now,
                408 if it does not come.
            ClientDisconnect: the client left.
        """
        count = _Count(self)
        try:
            try:
                async with asyncio.timeout(self.settings.body_seconds):
                    body = await self._whole(request, count)
            except TimeoutError:
                raise too_slow(self.settings.body_seconds) from None
            except RefusedError:
                await self.discard(request)
                raise
            yield body
        finally:
            self.held -= count.size

    async def discard(self, request: Request) -> None:
        """Read a body that is not wanted; one that is far too large is left where it is."""
        most = LINGER * self.settings.max_body
        if (declared_length(request) or 0) > most:
            return
        size = 0
        try:
            async with asyncio.timeout(min(LINGER_SECONDS, self.settings.body_seconds)):
                async for piece in _pieces(request):
                    size += len(piece)
                    if size > most:
                        return
        except (TimeoutError, ClientDisconnect):
            return

    async def _whole(self, request: Request, count: _Count) -> bytes:
        count.reach(declared_length(request) or 0)
        body = bytearray()
        async for piece in _pieces(request):
            count.reach(len(body) + len(piece))
            body += piece
        return bytes(body)


class _Count:
    """Bytes that one body counts for: those declared, or those that came, if they are more."""

    def __init__(self, bodies: Bodies) -> None:
        self.bodies, self.size = bodies, 0

    def reach(self, size: int) -> None:
        """Count at least `size`, or refuse it."""
        settings, more = self.bodies.settings, size - self.size
        if size > settings.max_body:
            raise too_large(settings.max_body)
        if more <= 0:
            return
        if self.bodies.held + more > settings.max_bytes:
            raise too_many_bytes(settings.max_bytes)
        self.bodies.held += more
        self.size = size


def declared_length(request: Request) -> int | None:
    """What `Content-Length` says; `None` for a body that comes in chunks."""
    told = request.headers.get("content-length", "")
    return int(told) if told.isascii() and told.isdecimal() else None


async def _pieces(request: Request) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        more = message.get("more_body", False)
        yield message.get("body", b"")
