"""Who may ask: the token, and on the loopback only pages and names of this machine.

A page from elsewhere can make a browser send requests to `127.0.0.1`, under its own Origin or, with
a name that it points there (DNS rebinding), under its own Host. There are no CORS headers, so no
page from elsewhere reads an answer either.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from ..bodies import Bodies
from ..login import LOGIN_PATH, Login, is_same
from ..refusal import RefusedError, unknown_client
from ..settings import ServerSettings, is_loopback
from .errors import ApiError, refused

OPEN_PATHS = ("/health", "/ready")
"""What probes ask without a token; they are told less."""


class Guard:
    """Middleware that refuses a request before its body is read.

    Args:
        settings: `host` is where the server listens, `token` what clients send.
        bodies: read what a refused client still sends.
        login: for servers with a page: browsers are shown a form instead of a refusal, and its
            cookie counts as the token.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        bodies: Bodies,
        login: Login | None = None,
    ) -> None:
        self.app, self.settings, self.bodies, self.login = app, settings, bodies, login

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        is_known = self._has_token(headers)
        refusal, login = self._refusal(headers), self.login
        if refusal is None and login is not None and _is_login(scope):
            await (await login.answer(Request(scope, receive)))(scope, receive, send)
            return
        if refusal is None and not is_known and scope["path"] not in OPEN_PATHS:
            if login is not None and "text/html" in headers.get("accept", ""):
                await login.form()(scope, receive, send)
                return
            refusal = unknown_client()
        if refusal is not None:
            await self.bodies.refusal(refused(refusal))(scope, receive, send)
            return
        scope.setdefault("state", {})["is_known"] = is_known
        await self.app(scope, receive, send)

    def _refusal(self, headers: Headers) -> RefusedError | None:
        if not is_loopback(self.settings.host):
            return None
        host, origin = headers.get("host"), headers.get("origin")
        if host is not None and not is_local(f"//{host}"):
            return ApiError(
                403,
                f"the Host is '{host}', and this server listens on the loopback; ask for "
                "127.0.0.1 or localhost, or bind another --host with a --token",
                code="host_not_allowed",
            )
        if origin is not None and not is_local(origin):
            return ApiError(
                403,
                f"the Origin is '{origin}', and this server answers pages of this machine alone",
                code="origin_not_allowed",
            )
        return None

    def _has_token(self, headers: Headers) -> bool:
        if self.settings.token is None:
            return True
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and is_same(token.strip(), self.settings.token):
            return True
        return self.login is not None and self.login.has_cookie(headers)


def _is_login(scope: Scope) -> bool:
    return bool(scope["path"] == LOGIN_PATH and scope["method"] == "POST")


def is_local(address: str) -> bool:
    """Returns whether the host of a URL is this machine's loopback."""
    try:
        host = urlsplit(address).hostname
    except ValueError:
        return False
    return host is not None and is_loopback(host)
