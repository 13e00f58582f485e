"""The application of a server: paths of all of them, what every handler of requests shares, and
Uvicorn with a graceful shutdown during which `/ready` says so."""

from __future__ import annotations

import asyncio
import copy
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive
from uvicorn.config import LOGGING_CONFIG

from ..errors import SoonerError
from .http import Guard, name_of
from .metrics import ServerMetrics
from .refusal import RefusedError, past_deadline, refusal_of, refused, too_many
from .run import bind, url
from .settings import ServerSettings

if TYPE_CHECKING:
    from .engine_thread import EngineThread

logger = logging.getLogger("sooner.serve")

STALL = 30.0
"""Seconds without a round of the engine's loop after which `/health` fails."""
FLUSH_SECONDS = 2
"""What writing the last answers may take once they are there."""
REFUSAL = {
    "description": "A refusal: `error` has a `message`, and the `param` that is at fault.",
    "content": {"application/json": {}},
}
"""Describes the refusals of every path for `/docs`; docs/serve.md lists them."""

Result = TypeVar("Result")


class Handler:
    """Answers the requests of an application; what they ask for is a subclass's.

    Args:
        service: that decodes.
        settings: limits.
        name: of what is served, for the metrics.
        maximum: requests that are under way at once.

    Attributes:
        on_stop: called with the number of requests under way, if any, when the server is to stop.
        metrics: of the whole server.
        num_in_flight: requests that are read, prepared or answered.
    """

    def __init__(
        self, service: EngineThread, settings: ServerSettings, name: str, maximum: int
    ) -> None:
        self.service, self.settings, self.clock = service, settings, service.clock
        self.maximum = maximum
        self.on_stop: Callable[[int], Any] = lambda count: None
        self.metrics = service.listener = ServerMetrics(name, service)
        self.num_in_flight = 0
        self.is_closing = False

    def add_routes(self, app: FastAPI) -> None:
        """Add the paths of what the server does; its health and its metrics are there already."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin to work; returns at once."""
        self.service.start()

    async def close(self) -> None:
        """Take nothing new, answer what is under way for `grace_seconds`, and end; a step that
        still runs then is left behind."""
        if self.is_closing:
            return
        self.is_closing = True
        self.service.drain()
        if self.num_in_flight:
            self.on_stop(self.num_in_flight)
        grace, count = self.settings.grace_seconds, lambda: self.num_in_flight
        if not await asyncio.to_thread(self.service.close, grace, count):
            logger.error("the engine hangs, and is left behind")

    def status(self) -> str:
        """Returns the service's state; `stalled` where the engine's loop does not go round."""
        state = self.service.state
        if state in ("ready", "draining") and self._waited() > STALL:
            return "stalled"
        return "ok" if state == "ready" else state

    def _waited(self) -> float:
        return max(self.clock() - self.service.last_tick, 0.0)

    def description(self) -> dict[str, Any]:
        """Returns what `/health` tells of the model."""
        return {}

    async def health(self, request: Request) -> Response:
        """Returns whether the engine's loop goes round; 503 if it has not for 30 s.

        Without the token it tells nothing more.
        """
        answer: dict[str, Any] = {"status": self.status()}
        if request.state.is_known:
            load = self.service.load()
            answer |= {"seconds_since_tick": round(self._waited(), 3), "running": load.running}
            answer |= {"waiting": load.waiting, **self.description()}
            if self.service.fault is not None:
                answer["fault"] = self.service.fault
        return JSONResponse(answer, 503 if answer["status"] in ("stalled", "failed") else 200)

    async def ready(self) -> Response:
        """Returns whether requests are taken; 503 while warming up and draining."""
        state = self.service.state
        return JSONResponse({"status": state}, 200 if state == "ready" else 503)

    async def metrics_text(self) -> Response:
        """Returns counters, gauges and histograms under vLLM's names, with the prefix `sooner:`."""
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def count_in_flight(self, request: Request) -> AsyncIterator[None]:
        """Count a request as in flight until its response is sent, whatever happens, and end
        what is on `request.state.exits` then.

        Raises:
            RefusedError: nothing is taken now.
        """
        self.service.check_takes()
        if self.num_in_flight >= self.maximum:
            raise too_many(self.maximum)
        self.num_in_flight += 1
        request.state.began = self.clock()
        try:
            with ExitStack() as request.state.exits:
                yield
        finally:
            self.num_in_flight -= 1

    async def wait_for(
        self, request: Request, work: Awaitable[Result], deadline: float | None = None
    ) -> Result:
        """Returns what `work` gives, cancelled if the client hangs up or the deadline passes.

        Raises:
            ClientDisconnect: the client hung up.
            RefusedError: the deadline passed.
        """
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(wait_closed(request.receive))
        limit = None if deadline is None else max(deadline - self.clock(), 0)
        try:
            await asyncio.wait({task, gone}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if gone.done():
                raise ClientDisconnect
            raise past_deadline(self.clock() - request.state.began)
        finally:
            task.cancel()
            gone.cancel()
            await asyncio.wait({task, gone})
            if not task.cancelled():
                task.exception()  # seen, even if nobody waits for it
            # An error's frames would hold the task that holds the error, and with it all the pixels
            # that those frames had, until cycles are collected.
            del task, gone


async def wait_closed(receive: Receive) -> None:
    """Returns when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Route(APIRoute):
    """A path whose errors are refusals."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def answer_or_refuse(request: Request) -> Response:
            try:
                return await answer(request)
            except (Exception, asyncio.CancelledError) as error:
                return refused(refusal_of(error, name_of(request)))

        return answer_or_refuse


def create_app(handler: Handler) -> FastAPI:
    """Returns the server of one model; its handler is started and closed with it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        handler.start()
        yield
        await handler.close()

    app = FastAPI(
        title="sooner", lifespan=lifespan, redoc_url=None, redirect_slashes=False,
        responses={"default": REFUSAL},
    )  # fmt: skip
    app.add_middleware(Guard, settings=handler.settings)
    app.state.handler = handler
    app.router.route_class = Route
    app.exception_handler(HTTPException)(_refused)
    handler.add_routes(app)
    app.get("/health")(handler.health)
    app.get("/ready")(handler.ready)
    app.get("/metrics", response_class=PlainTextResponse)(handler.metrics_text)
    return app


async def _refused(request: Request, error: Exception) -> Response:
    """Returns the refusal of paths and methods that there are not."""
    assert isinstance(error, HTTPException)
    path, headers = request.url.path[:200], dict(error.headers or {})
    if error.status_code == 405:
        text = f"{path} takes {headers.get('Allow')}, not {request.method}; see /docs"
    else:
        text = f"no path {path} here; a client's base URL ends in /v1, for all paths see /docs"
    return refused(RefusedError(error.status_code, text, headers=headers))


class DrainingServer(uvicorn.Server):
    """Uvicorn's server for an application that ends what is under way before listening ends.

    Uvicorn stops listening first and tells the application last. Here, readiness flips first, what
    is under way is answered or refused within `grace_seconds`, and then listening ends. A second
    Ctrl-C ends the grace, so that clients are refused at once.

    An application without a handler has nothing under way.
    """

    def __init__(self, app: FastAPI, settings: ServerSettings, log_level: str = "warning") -> None:
        self.handler: Handler | None = getattr(app.state, "handler", None)
        self.settings = settings
        log_config = copy.deepcopy(LOGGING_CONFIG)  # with our lines beside its own
        log_config["loggers"]["sooner.serve"] = {
            "handlers": ["default"],
            "level": log_level.upper(),
        }
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            log_level=log_level,
            log_config=log_config,
            access_log=False,  # ours has the request's id
            limit_concurrency=settings.max_connections,
            timeout_graceful_shutdown=FLUSH_SECONDS,
            server_header=False,
        )
        super().__init__(config)

    def listen(self, on_ready: Callable[[str], Any] = lambda url: None) -> None:
        """Serve at the address of the settings, as `run`.

        Args:
            on_ready: told the address once the handler takes requests.

        Raises:
            SoonerError: the address is taken, or the engine was lost.
        """
        assert self.handler is not None
        with bind(self.settings) as listening:
            self.handler.service.on_ready = partial(on_ready, url(listening))
            self.run([listening])

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until the process is told to stop (SIGINT, SIGTERM), or the engine is lost.

        Raises:
            SoonerError: the engine was lost.
        """
        super().run(sockets)
        if self.handler is not None and (fault := self.handler.service.fault) is not None:
            raise SoonerError(
                f"the engine was lost ({fault}), and the server ended; the log tells more"
            )

    async def on_tick(self, counter: int) -> bool:
        self.should_exit |= self.handler is not None and self.handler.service.state == "failed"
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Uvicorn raises signals again in the end, which would make a failure of SIGTERM, by which
        servers are told to stop; and a second one would end asyncio's loop with a traceback."""
        if self.should_exit and self.handler is not None:
            self.handler.service.end_grace()
        elif sig == signal.SIGINT:
            super().handle_exit(sig, frame)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.handler is not None:
            await self.handler.close()
        await super().shutdown(sockets)
