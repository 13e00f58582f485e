"""What stands before the handlers: who may ask, ids of requests, and limits of their bodies.

A connection that is closed while bytes of the client lie unread is reset, and many a client then
drops the response that it has received already. So a refusal is sent once the body has been read,
unless that is far too large or does not come.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import re
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

from fastapi.responses import Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .refusal import RefusedError, refused
from .settings import ServerSettings, is_loopback

LINGER, LINGER_SECONDS = 8, 5.0
"""A refused body is read and thrown away if it has no more than this many times the largest one
that is taken, until this many seconds pass without any of it, or `body_seconds` in all."""
IS_READ = "body_is_read"
"""Key of a request's state, once the end of its body has come."""

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
        count = _Count(self)
        try:
            try:
                async with asyncio.timeout(self.settings.body_seconds):
                    body = await self._whole(request, count)
            except TimeoutError:
                seconds = self.settings.body_seconds
                text = f"the request was not sent within {seconds:g} s; send it again"
                raise RefusedError(408, text) from None
            yield body
        finally:
            self.in_use -= count.size

    def refusal(self, answer: Response) -> Response:
        """Returns a refusal as it is sent to a client that may still be sending its body."""
        return _Refusal(answer, self)

    async def discard(self, request: Request) -> bool:
        """Read the rest of a body that is not wanted; what is far too large is left where it is.

        Returns whether the client is still there.
        """
        limit = LINGER * self.settings.max_body
        if _state(request).get(IS_READ) or (declared_length(request) or 0) > limit:
            return True
        size, pieces = 0, _pieces(request)
        try:
            async with asyncio.timeout(self.settings.body_seconds):
                while size <= limit:
                    async with asyncio.timeout(LINGER_SECONDS):
                        size += len(await anext(pieces))
        except ClientDisconnect:
            return False
        except (TimeoutError, StopAsyncIteration):
            pass
        return True

    async def _whole(self, request: Request, count: _Count) -> bytes:
        count.reach(declared_length(request) or 0)
        body = bytearray()
        async for piece in _pieces(request):
            count.reach(len(body) + len(piece))
            body += piece
        return bytes(body)


class _Refusal(Response):
    """A response that is sent once the client has sent its body."""

    def __init__(self, answer: Response, bodies: Bodies) -> None:
        self.answer, self.bodies = answer, bodies
        self.status_code, self.raw_headers = answer.status_code, answer.raw_headers
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if await self.bodies.discard(Request(scope, receive)):
            await self.answer(scope, receive, send)


class _Count:
    """Bytes that one body counts for: those declared, or those that came, if they are more."""

    def __init__(self, bodies: Bodies) -> None:
        self.bodies, self.size = bodies, 0

    def reach(self, size: int) -> None:
        """Count at least `size`, or refuse it."""
        settings, more = self.bodies.settings, size - self.size
        if size > settings.max_body:
            raise RefusedError(
                413,
                f"the request has more than {settings.max_body / 2**20:g} MiB; send the image "
                "encoded, or smaller",
                headers={"Connection": "close"},
            )
        if more <= 0:
            return
        if self.bodies.in_use + more > settings.max_bytes:
            raise RefusedError(
                429,
                f"requests of {settings.max_bytes / 2**20:g} MiB are being read already; come back "
                "in 1 s",
                headers={"Retry-After": "1"},
            )
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


class Guard:
    """Middleware that refuses a request before its body is read: without the token, and on the
    loopback by pages and under names of other machines.

    A page from elsewhere can make a browser send requests to `127.0.0.1`, under its own Origin or,
    with a name that it points there (DNS rebinding), under its own Host. There are no CORS headers,
    so no page from elsewhere reads an answer either.

    Args:
        settings: `host` is where the server listens, `token` what clients send.
        bodies: read what a refused client still sends.
        has_page: browsers are asked for the token, as the password of HTTP's Basic scheme.
        refuse: writes a refusal in the application's form.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        bodies: Bodies,
        has_page: bool = False,
        refuse: Callable[[RefusedError], Response] = refused,
    ) -> None:
        self.app, self.settings, self.bodies, self.has_page = app, settings, bodies, has_page
        self.refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        is_known = self._has_token(headers)
        refusal = self._refusal(headers)
        if refusal is None and not is_known and scope["path"] not in OPEN_PATHS:
            is_browser = self.has_page and "text/html" in headers.get("accept", "")
            scheme = 'Basic realm="sooner", charset="UTF-8"' if is_browser else "Bearer"
            refusal = RefusedError(
                401,
                "the token is missing or wrong; send 'Authorization: Bearer TOKEN' (a client's "
                "api_key)",
                headers={"WWW-Authenticate": scheme},
            )
        if refusal is not None:
            await self.bodies.refusal(self.refuse(refusal))(scope, receive, send)
            return
        scope.setdefault("state", {})["is_known"] = is_known
        await self.app(scope, receive, send)

    def _refusal(self, headers: Headers) -> RefusedError | None:
        if not is_loopback(self.settings.host):
            return None
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
                f"the Origin is '{origin}', and this server answers pages of this machine alone",
                code="origin_not_allowed",
            )
        return None

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


class RequestIds:
    """Middleware: an id for each request, in the answer's header and in the log, which has a line
    for each answer; the client's own if it has one."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.monotonic()
        value = Headers(scope=scope).get(HEADER, "")
        name = value if SANE.fullmatch(value) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = name

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = name
                spent = 1e3 * (time.monotonic() - began)
                path = scope.get("raw_path", b"").decode("ascii", "replace")[:200]
                logger.info(
                    "%s %s %s %d %.1f ms", name, scope["method"], path, message["status"], spent
                )
            await send(message)

        await self.app(scope, receive, named)


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
