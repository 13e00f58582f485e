"""The page as an application: who may see it, and nothing from other hosts."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..serve.http import Guard
from ..serve.settings import ServerSettings

POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' "
    "'unsafe-inline'; img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self' "
    "data:; connect-src 'self' data: blob:; worker-src 'self' blob:; frame-ancestors 'self'; "
    "form-action 'self'"
)
"""Gradio needs inline scripts; nothing may be asked of another host."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


class PagePolicy:
    """Middleware around the page: what it may load."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def locked(message: Message) -> None:
            if scope["type"] == "http" and message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, locked)


class BasicToken:
    """Middleware that has browsers ask for the server's token, as the password of HTTP's Basic
    scheme, and hands it on as clients of the API send it.

    Browsers add a password by themselves, so it counts only where no page from elsewhere made them
    send the request.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def asking(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 401:
                scheme = 'Basic realm="sooner", charset="UTF-8"'
                MutableHeaders(scope=message)["WWW-Authenticate"] = scheme
            await send(message)

        if scope["type"] == "http":
            headers = Headers(scope=scope)
            kind, _, credentials = headers.get("authorization", "").partition(" ")
            origin = headers.get("origin")
            is_ours = origin is None or origin.partition("://")[2] == headers.get("host")
            if kind.lower() == "basic" and is_ours:
                with suppress(ValueError):
                    password = base64.b64decode(credentials, validate=True).partition(b":")[2]
                    MutableHeaders(scope=scope)["Authorization"] = f"Bearer {password.decode()}"
        await self.app(scope, receive, asking)


def create_app(
    settings: ServerSettings,
    mount: Callable[[FastAPI], Any],
    on_ready: Callable[[], None] = lambda: None,
) -> FastAPI:
    """Returns the application of `sooner demo`.

    Args:
        mount: puts the page on it, at `/`.
        on_ready: called once the server listens for signals.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        on_ready()
        yield

    app = FastAPI(
        title="sooner demo", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None
    )

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Asked by the page, which says so if nobody answers."""
        return {"status": "ready"}

    mount(app)
    app.add_middleware(PagePolicy)
    app.add_middleware(Guard, settings=settings)
    app.add_middleware(BasicToken)
    return app
