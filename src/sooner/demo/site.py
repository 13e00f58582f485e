"""The page as an application: who may see it, and nothing from other hosts."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable
from html import escape
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..serve.openai.guard import is_local
from ..serve.server import DrainingServer
from ..serve.settings import ServerSettings, is_loopback

COOKIE = "sooner_session"
LONGEST = 4096
"""Bytes of a login."""
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' "
    "'unsafe-inline'; img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self' "
    "data:; connect-src 'self' data: blob:; worker-src 'self' blob:; frame-ancestors 'self'; "
    "form-action 'self'"
)
"""Gradio needs inline scripts; nothing may be asked of another host."""
LOGIN = """<!doctype html><html lang="en"><meta charset="utf-8"><title>sooner: log in</title>
<meta name="viewport" content="width=device-width,initial-scale=1">
<style>:root{{color-scheme:light dark}}body{{font:16px/1.5 system-ui,sans-serif;max-width:24rem;
margin:15vh auto;padding:0 1rem}}input,button{{font:inherit;padding:.5rem;width:100%;
box-sizing:border-box;margin:.3rem 0}}</style><main><h1>sooner</h1><p role="alert">{told}</p>
<form method="post" action="/login"><label>Token of this server
<input type="password" name="token" required autocomplete="current-password"></label>
<button>Log in</button></form></main></html>"""


class Access:
    """Middleware: a token becomes an HttpOnly cookie, which guards every route.

    On the loopback only pages and names of this machine are answered (see `serve.openai.guard`).

    Args:
        settings: `token` is asked for, if there is one; `host` says where the server listens.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self.app, self.settings = app, settings
        self._session = secrets.token_urlsafe(32)  # of this process; the token stays out of it

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        answer: Response | None = None
        if not self._is_from_here(headers):
            answer = JSONResponse({"detail": "this server answers names of this machine"}, 403)
        elif scope["path"] == "/login" and scope["method"] == "POST":
            answer = await self._login(Request(scope, receive))
        elif not self._is_known(headers):
            is_page = "text/html" in headers.get("accept", "")
            page = HTMLResponse(LOGIN.format(told="This server asks for its token."), 401)
            told = {"detail": "the token is missing or wrong; log in at /"}
            answer = page if is_page else JSONResponse(told, 401)

        async def locked(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = MutableHeaders(scope=message)
                kept["Content-Security-Policy"] = POLICY
                kept["X-Content-Type-Options"] = "nosniff"
                kept["Referrer-Policy"] = "same-origin"
            await send(message)

        await (answer or self.app)(scope, receive, locked)

    def _is_from_here(self, headers: Headers) -> bool:
        if not is_loopback(self.settings.host):
            return True
        host, origin = headers.get("host"), headers.get("origin")
        return (host is None or is_local(f"//{host}")) and (origin is None or is_local(origin))

    def _is_known(self, headers: Headers) -> bool:
        if self.settings.token is None:
            return True
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and _same(token.strip(), self.settings.token):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and _same(cookie.value, self._session)

    async def _login(self, request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LONGEST:
                return HTMLResponse(LOGIN.format(told="That was too long for a token."), 413)
        given = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        if self.settings.token is not None and not _same(given, self.settings.token):
            told = "That is not the token; whoever started the server knows it."
            return HTMLResponse(LOGIN.format(told=escape(told)), 401)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(COOKIE, self._session, httponly=True, samesite="strict", path="/")
        return answer


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def create_app(settings: ServerSettings, mount: Callable[[FastAPI], Any]) -> FastAPI:
    """The application of `sooner demo`.

    Args:
        mount: puts the page on it, at `/`.
    """
    app = FastAPI(title="sooner demo", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/alive")
    async def alive() -> dict[str, bool]:
        """Asked by the page, which says so if nobody answers."""
        return {"alive": True}

    mount(app)
    app.add_middleware(Access, settings=settings)
    return app


def build_server(
    app: FastAPI, settings: ServerSettings, close: Callable[[], Awaitable[None]] | None = None
) -> DrainingServer:
    """Uvicorn with the limits of `sooner serve`; it ends at once."""

    async def nothing() -> None:
        return None

    return DrainingServer(app, settings, "warning", close or nothing)  # type: ignore[arg-type]
