"""The page as an application, or on that of `sooner serve`: who may see it, and nothing from other
hosts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from concurrent.futures import CancelledError, Future
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.responses import RedirectResponse
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import SoonerError
from ..serve.engine_thread import EngineThread
from ..serve.http import Guard
from ..serve.settings import ServerSettings
from ..tasks.loading import ModelPair
from .page import Recorder, build_page, mount_page
from .records import Live, Record
from .tabs import Recording, tasks_of

PATH = "/page"
"""Where the page is on a server of requests."""
LOOK = 0.2
"""Seconds between two looks whether a recording that waits for the engine was stopped."""

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


def mount_served(app: FastAPI, service: EngineThread, pair: ModelPair) -> None:
    """Put the page on a server's application.

    Clients come first: a recording begins when none is answered, and ends when one comes.
    """
    recorder = Recorder(partial(record_between, service))
    mount_page(app, build_page(tasks_of(pair), recorder), PATH)
    for route in app.routes:  # answers of the API pass by
        if isinstance(route, Mount) and route.path == PATH:
            route.app = PagePolicy(route.app)

    @app.get("/", include_in_schema=False)
    async def front() -> RedirectResponse:
        return RedirectResponse(PATH + "/", 307)


def record_between(service: EngineThread, recording: Recording, live: Live) -> Record:
    """Make a recording in the engine's thread, between the requests of clients.

    Raises:
        SoonerError: a request came, or the server stops; or what the recording raises.
    """
    done: Future[Record] = Future()
    gave_way = False

    def work(is_needed: Callable[[], bool]) -> None:
        if not done.set_running_or_notify_cancel():
            return

        def is_over() -> bool:
            nonlocal gave_way
            gave_way = gave_way or is_needed()
            return gave_way or live.is_stopped()

        try:
            done.set_result(recording(Live(live.show, is_over)))
        except Exception as error:
            done.set_exception(error)

    load = service.load()
    if load.running + load.waiting:
        live.stage("Clients are being answered; yours is next ...")
    service.when_idle(work)
    while True:
        try:
            return done.result(LOOK)
        except CancelledError as error:
            raise SoonerError(
                "stopped before it began; run it again"
                if live.is_stopped()
                else f"the engine is {service.state}; run it again once it is ready"
            ) from error
        except SoonerError as error:
            if gave_way:
                raise SoonerError("a client's request came first; run it again") from error
            raise
        except TimeoutError:
            if done.done():
                raise  # the recording's own
            if live.is_stopped() or service.state != "ready":
                done.cancel()  # not if it runs: it asks for itself
