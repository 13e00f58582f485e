"""The page as an application: who may see it, and nothing from other hosts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
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
    app.add_middleware(Guard, settings=settings, has_page=True)
    return app
