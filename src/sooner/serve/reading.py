"""Bodies of requests, read to their end even where they are refused.

A client whose connection is cut while it still sends never sees what it is told.
"""

from __future__ import annotations

import asyncio

from fastapi import Request
from starlette.requests import ClientDisconnect

from .refusal import too_large, too_slow

LINGER = 8
"""Times the largest body that is read of a refused one, and thrown away."""


async def read_body(request: Request, most: int, seconds: float) -> bytes:
    """The body of a request.

    Args:
        most: bytes of it.
        seconds: that it may take to come.

    Raises:
        RefusedError: 413 if it is larger, 408 if it is slower.
        ClientDisconnect: the client left.
    """
    try:
        async with asyncio.timeout(seconds):
            body, size = await _pieces(request, most, LINGER * most)
    except TimeoutError:
        raise too_slow(seconds) from None
    if size > most:
        raise too_large(most)
    return body


async def discard_body(request: Request, most: int, seconds: float) -> None:
    """Read a body that is not wanted, but no more than a few times `most`."""
    try:
        async with asyncio.timeout(seconds):
            await _pieces(request, 0, LINGER * most)
    except (TimeoutError, ClientDisconnect):
        return


async def _pieces(request: Request, keep: int, most: int) -> tuple[bytes, int]:
    """The body, if it has no more than `keep` bytes, and how many were read."""
    body, size, more = bytearray(), 0, True
    while more and size <= most:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece = message.get("body", b"")
        size += len(piece)
        more = message.get("more_body", False)
        if size > keep:
            body.clear()
        else:
            body += piece
    return bytes(body), size
