"""An id for each request, in the answer's header and in the log; the client's own if it has one."""

from __future__ import annotations

import logging
import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger("sooner.serve")

HEADER = "X-Request-Id"
SANE = re.compile(r"[A-Za-z0-9._:-]{1,128}")
"""Ids of clients that are taken over; others could forge lines of the log."""


class RequestIds:
    """Middleware around an application; logs a line for each answer."""

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
