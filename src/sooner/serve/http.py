"""What stands before the handlers: who may ask, ids of requests, and limits of their bodies."""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import re
import time
import uuid
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .refusal import RefusedError, refused
from .settings import ServerSettings, is_loopback

LINGER, LINGER_SECONDS = 8, 5.0
"""A refused body is read and thrown away if it has no more than this many times the largest one
that is taken, until this many seconds pass without any of it, or `body_seconds` in all."""

Result = TypeVar("Result")
logger = logging.getLogger("sooner.serve")
OPEN_PATHS = ("/health", "/ready")
"""What probes ask without a token; they are told less."""
HEADER = "X-Request-Id"
SANE = re.compile(r"[A-Za-z0-9._:-]{1,128}")
"""Ids of clients that are taken over; others could forge lines of the log."""


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
        settings, counted = self.settings, 0

        def count(size: int) -> None:
            nonlocal counted
            if size > settings.max_body:
                text = (
                    f"the request has more than {settings.max_body / 2**20:g} MiB; send the image "
                    "encoded, or smaller"
                )
                raise RefusedError(413, text, headers={"Connection": "close"})
            more = max(size - counted, 0)
            if self.in_use + more > settings.max_bytes:
                text = (
                    f"requests of {settings.max_bytes / 2**20:g} MiB are being read already; come "
                    "back in 1 s"
                )
                raise RefusedError(429, text, headers={"Retry-After": "1"})
            self.in_use += more
            counted += more

        body = bytearray()
        try:
            count(declared_length(request.headers))
            try:
                async with asyncio.timeout(settings.body_seconds):
                    async for piece in request.stream():
                        count(len(body) + len(piece))
                        body += piece
            except TimeoutError:
                text = f"the request was not sent within {settings.body_seconds:g} s; send it again"
                raise RefusedError(408, text) from None
            yield bytes(body)
        finally:
            self.in_use -= counted


def declared_length(headers: Headers) -> int:
    """Returns what `Content-Length` says; 0 for a body that comes in chunks."""
    header = headers.get("content-length", "")
    return int(header) if header.isascii() and header.isdecimal() else 0


class Guard:
    """Middleware that gives each request an id, in the answer's header and in the log, and refuses
    some before their bodies are read: without the token, and on the loopback by pages and under
    names of other machines.

    A page from elsewhere can make a browser send requests to `127.0.0.1`, under its own Origin or,
    with a name that it points there (DNS rebinding), under its own Host. There are no CORS headers,
    so no page from elsewhere reads an answer either.

    A connection that is closed while bytes of the client lie unread is reset, and many a client
    then drops the response that it has received already. So refusals, the application's too, are
    sent once the body has been read, unless that is far too large or does not come.

    Args:
        settings: `host` is where the server listens, `token` what clients send.
        has_page: browsers are asked for the token, as the password of HTTP's Basic scheme.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings, has_page: bool = False) -> None:
        self.app, self.settings, self.has_page = app, settings, has_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, headers = time.monotonic(), Headers(scope=scope)
        value = headers.get(HEADER, "")
        name = value if SANE.fullmatch(value) else uuid.uuid4().hex
        is_unread = True  # the end of the body has not come

        async def received() -> Message:
            nonlocal is_unread
            message = await receive()
            is_unread &= message.get("more_body", False)
            return message

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                if message["status"] >= 400 and is_unread:
                    await self._discard(received, declared_length(headers))
                MutableHeaders(scope=message)[HEADER] = name
                spent = 1e3 * (time.monotonic() - began)
                path = scope.get("raw_path", b"").decode("ascii", "replace")[:200]
                logger.info(
                    "%s %s %s %d %.1f ms", name, scope["method"], path, message["status"], spent
                )
            await send(message)

        is_known = self._has_token(headers)
        scope.setdefault("state", {}).update(request_id=name, is_known=is_known)
        refusal = self._refusal(headers, is_known or scope["path"] in OPEN_PATHS)
        app = self.app if refusal is None else refused(refusal)
        await app(scope, received, answer)

    async def _discard(self, receive: Receive, declared: int) -> None:
        """Read the rest of a body that is not wanted; what is far too large is left where it is."""
        limit, size = LINGER * self.settings.max_body, 0
        is_coming = declared <= limit
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.body_seconds):
                while is_coming and size <= limit:
                    async with asyncio.timeout(LINGER_SECONDS):
                        message = await receive()
                    size += len(message.get("body", b""))
                    is_coming = message.get("more_body", False)

    def _refusal(self, headers: Headers, may_enter: bool) -> RefusedError | None:
        if is_loopback(self.settings.host):
            host, origin = headers.get("host"), headers.get("origin")
            if host is not None and not is_local(f"//{host}"):
                return RefusedError(
                    403,
                    f"the Host is '{host}', and this server listens on the loopback; ask for "
                    "127.0.0.1 or localhost, or bind another --host with a --token",
                    code="host_not_allowed",
                )
            if origin is not None and not is_local(origin):
                return RefusedError(
                    403,
                    f"the Origin is '{origin}', and this server answers pages of this machine "
                    "alone",
                    code="origin_not_allowed",
                )
        if may_enter:
            return None
        is_browser = self.has_page and "text/html" in headers.get("accept", "")
        scheme = 'Basic realm="sooner", charset="UTF-8"' if is_browser else "Bearer"
        return RefusedError(
            401,
            "the token is missing or wrong; send 'Authorization: Bearer TOKEN' (a client's "
            "api_key)",
            headers={"WWW-Authenticate": scheme},
        )

    def _has_token(self, headers: Headers) -> bool:
        if self.settings.token is None:
            return True
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "basic" and self.has_page and _is_same_site(headers):
            token = _password(token)
        elif kind.lower() != "bearer":
            return False
        return hmac.compare_digest(token.strip().encode(), self.settings.token.encode())


def _password(credentials: str) -> str:
    """Returns the password of HTTP's Basic scheme; empty if there is none."""
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def _is_same_site(headers: Headers) -> bool:
    """Returns whether no page from elsewhere made a browser send this, which adds a password by
    itself."""
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host")


def is_local(address: str) -> bool:
    """Returns whether the host of a URL is this machine's loopback."""
    try:
        host = urlsplit(address).hostname
    except ValueError:
        return False
    return host is not None and is_loopback(host)


def name_of(request: Request) -> str:
    """Returns the id of a request."""
    return str(getattr(request.state, "request_id", ""))


async def hang_up(receive: Receive) -> None:
    """Returns when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Returns the result of `work`, which is cancelled if the client hangs up.

    Raises:
        ClientDisconnect: it did.
    """
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(hang_up(request.receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.wait({task, gone})
        if not task.cancelled():
            task.exception()  # seen, even if nobody waits for it
        # An error's frames would hold the task that holds the error, and with it all the pixels
        # that those frames had, until cycles are collected.
        del task, gone
