"""Request bodies: limited before they are read; who is refused is answered before the rest is read.

A connection that is closed while bytes of the client lie unread is reset, and many a client then
drops the response that it has received already. So a refusal is sent at once, and the connection is
closed once the client has sent its body, or has read the answer and left (nginx calls it a
lingering close).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from h11 import LocalProtocolError
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from .refusal import too_large, too_many_bytes, too_slow
from .settings import ServerSettings

LINGER, LINGER_SECONDS = 8, 5.0
"""A refused body is read and thrown away if it has no more than this many times the largest one
that is taken, until this many seconds pass without any of it, or `body_seconds` in all."""
IS_READ = "body_is_read"
"""Key of a request's state, once the end of its body has come."""


class Bodies:
    """Reads bodies within the limits of a server.

    Args:
        settings: `max_body` bytes of one body, `max_bytes` of all that are held at a time,
            `body_seconds` that sending one may take.

    Attributes:
        in_use: bytes of all bodies that are being read, or were and are still in use.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.in_use = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Yields the body of a request; its bytes count until the context ends.

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
            yield body
        finally:
            self.in_use -= count.size

    def refusal(self, answer: Response) -> LingeringResponse:
        """Returns a refusal as it is sent to a client that may still be sending its body."""
        return LingeringResponse(answer, self)

    async def discard(self, request: Request) -> None:
        """Read the rest of a body that is not wanted; what is far too large is left where it is."""
        limit = LINGER * self.settings.max_body
        if _state(request).get(IS_READ) or (declared_length(request) or 0) > limit:
            return
        size, pieces = 0, _pieces(request)
        try:
            async with asyncio.timeout(self.settings.body_seconds):
                while size <= limit:
                    async with asyncio.timeout(LINGER_SECONDS):
                        size += len(await anext(pieces))
        except (TimeoutError, ClientDisconnect, StopAsyncIteration):
            return

    async def _whole(self, request: Request, count: _Count) -> bytes:
        count.reach(declared_length(request) or 0)
        body = bytearray()
        async for piece in _pieces(request):
            count.reach(len(body) + len(piece))
            body += piece
        return bytes(body)


class LingeringResponse(Response):
    """A response that is sent whole, and ends when the client has sent its body.

    It says its length, so the client has all of it before the connection is closed.

    Args:
        answer: what is sent.
        bodies: read what the client still sends.
    """

    def __init__(self, answer: Response, bodies: Bodies) -> None:
        self.answer, self.bodies = answer, bodies
        self.status_code, self.raw_headers = answer.status_code, answer.raw_headers
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_but_the_end(message: Message) -> None:
            await send({**message, "more_body": True} if "body" in message else message)

        try:
            await self.answer(scope, receive, send_but_the_end)
        except LocalProtocolError:  # a body that is no HTTP: uvicorn has said so, and closes
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        await self.bodies.discard(Request(scope, receive))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


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
        if self.bodies.in_use + more > settings.max_bytes:
            raise too_many_bytes(settings.max_bytes)
        self.bodies.in_use += more
        self.size = size


def declared_length(request: Request) -> int | None:
    """Returns what `Content-Length` says; `None` for a body that comes in chunks."""
    header = request.headers.get("content-length", "")
    return int(header) if header.isascii() and header.isdecimal() else None


def _state(request: Request) -> dict[str, Any]:
    state: dict[str, Any] = request.scope.setdefault("state", {})
    return state


async def _pieces(request: Request) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        more = message.get("more_body", False)
        if not more:
            _state(request)[IS_READ] = True
        yield message.get("body", b"")
