"""Uvicorn with connection limits and a graceful shutdown during which `/health` says so."""

from __future__ import annotations

import asyncio
import copy
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn
from fastapi.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import LOGGING_CONFIG
from uvicorn.protocols.http.h11_impl import H11Protocol

from .http import Bodies
from .refusal import RefusedError, refused
from .settings import ServerSettings

HARD_LIMIT = 2
"""Multiple of the connection limit above which connections are closed without a response."""
FLUSH_SECONDS = 2
"""What writing the last answers may take once they are there."""


class DrainingServer(uvicorn.Server):
    """Uvicorn's server for an application that ends what is under way before listening ends.

    Uvicorn stops listening first and tells the application last. Here, readiness flips first, what
    is under way is answered or refused within `grace_seconds`, and then listening ends. A second
    Ctrl-C ends the grace, so that clients are refused at once; a third one waits for nobody.

    Args:
        close: ends what is under way.
        hurry: ends the grace of a `close` that is under way.
        is_broken: whether the application can't go on; then the server stops by itself.
        refuse: writes a refusal in the application's form.

    Attributes:
        is_terminated: a SIGTERM came while uvicorn was not listening for one.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        log_level: str,
        close: Callable[[], Coroutine[Any, Any, None]],
        is_broken: Callable[[], bool] = lambda: False,
        refuse: Callable[[RefusedError], Response] = refused,
        hurry: Callable[[], None] = lambda: None,
    ) -> None:
        self.close, self.is_broken, self.hurry = close, is_broken, hurry
        self.is_terminated = False
        self._interrupts = 0
        config = uvicorn.Config(
            app,
            http=_limited(settings, refuse),
            ws="none",
            log_level=log_level,
            log_config=_log_config(log_level),
            access_log=False,  # ours has the request's id
            timeout_graceful_shutdown=FLUSH_SECONDS,
            server_header=False,
        )
        super().__init__(config)

    async def on_tick(self, counter: int) -> bool:
        self.should_exit |= self.is_terminated or self.is_broken()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Uvicorn raises every signal again in the end, and a second one would end asyncio's loop
        with a traceback for each connection: the first one is enough."""
        if not self.should_exit:
            super().handle_exit(sig, frame)
            return
        self._interrupts += sig == signal.SIGINT
        self.force_exit = self._interrupts > 1

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        closing = asyncio.ensure_future(self.close())
        is_hurried = False
        while not closing.done() and not self.force_exit:
            if self._interrupts and not is_hurried:
                is_hurried = True
                self.hurry()
            await asyncio.wait({closing}, timeout=0.1)
        await super().shutdown(sockets)


@contextmanager
def stopping_is_no_failure(server: DrainingServer) -> Iterator[None]:
    """Uvicorn raises the signal that ended it again, which would end the process as if by it.

    SIGTERM is how servers are told to stop; one that has answered everybody ends with 0. One that
    comes before uvicorn listens for signals stops the server as well.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(*arguments: Any) -> None:
        server.is_terminated = True

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class LimitedConnection(H11Protocol):
    """A connection that is refused beyond a limit, and cut if no request comes.

    Uvicorn's own `limit_concurrency` refuses those who are connected already, and it waits for a
    first request for ever.

    Attributes:
        settings: of the server.
        full: answers on connections beyond the limit.
    """

    settings: ServerSettings
    full: ASGIApp

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        many = len(self.connections)
        if many > HARD_LIMIT * self.settings.max_connections:
            transport.abort()
            return
        if many > self.settings.max_connections:
            self.app = self.full
        self._watch(None)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if (timer := getattr(self, "_timer", None)) is not None:
            timer.cancel()

    def _watch(self, last: Any) -> None:
        self._timer = self.loop.call_later(self.settings.head_seconds, self._check, last)

    def _check(self, last: Any) -> None:
        """Close if there was no request since the last look, whatever trickles in.

        A client that reads nothing of what was written never lets its connection close.
        """
        if self.transport.is_closing():
            self.transport.abort()
            return
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self.cycle is last:
            self.transport.close()
        self._watch(self.cycle)


def _limited(
    settings: ServerSettings, refuse: Callable[[RefusedError], Response]
) -> type[LimitedConnection]:
    """Uvicorn makes the connections and passes no arguments of ours."""

    async def full(scope: Scope, receive: Receive, send: Send) -> None:
        refusal = RefusedError(
            503,
            f"{settings.max_connections} connections are open already; come back in 1 s, or "
            "share one connection",
            headers={"Retry-After": "1", "Connection": "close"},
        )
        await Bodies(settings).refusal(refuse(refusal))(scope, receive, send)

    fields = {"settings": settings, "full": staticmethod(full)}
    return type("LimitedConnection", (LimitedConnection,), fields)


def _log_config(level: str) -> dict[str, Any]:
    """Returns Uvicorn's, with our lines beside its own."""
    config = copy.deepcopy(LOGGING_CONFIG)
    config["loggers"]["sooner.serve"] = {"handlers": ["default"], "level": level.upper()}
    return config
