"""Who may ask: the token, and on the loopback only pages and names of this machine.

A page from elsewhere can make a browser send requests to `127.0.0.1`, under its own Origin or, with
a name that it points there (DNS rebinding), under its own Host. There are no CORS headers, so no
page from elsewhere reads an answer either.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..bodies import Bodies
from ..refusal import RefusedError, unknown_client
from ..settings import ServerSettings, is_loopback
from .errors import refused

OPEN_PATHS = ("/health", "/ready")
"""What probes ask without a token; they are told less."""


class Guard:
    """Middleware that refuses a request before its body is read.

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
            refusal = unknown_client()
            if self.has_page and "text/html" in headers.get("accept", ""):
                refusal.headers["WWW-Authenticate"] = 'Basic realm="sooner", charset="UTF-8"'
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
