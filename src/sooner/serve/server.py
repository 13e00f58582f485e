"""Uvicorn with a graceful shutdown during which `/ready` says so."""

from __future__ import annotations

import copy
import signal
import socket
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import LOGGING_CONFIG

from ..errors import SoonerError
from .settings import ServerSettings

if TYPE_CHECKING:
    from .app import Handler

FLUSH_SECONDS = 2
"""What writing the last answers may take once they are there."""


class DrainingServer(uvicorn.Server):
    """Uvicorn's server for an application that ends what is under way before listening ends.

    Uvicorn stops listening first and tells the application last. Here, readiness flips first, what
    is under way is answered or refused within `grace_seconds`, and then listening ends. A second
    Ctrl-C ends the grace, so that clients are refused at once.

    Args:
        handler: of the application; without one nothing is waited for.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        log_level: str = "warning",
        handler: Handler | None = None,
    ) -> None:
        self.handler = handler
        log_config = copy.deepcopy(LOGGING_CONFIG)  # with our lines beside its own
        log_config["loggers"]["sooner.serve"] = {
            "handlers": ["default"],
            "level": log_level.upper(),
        }
        config = uvicorn.Config(
            app,
            http="h11",  # limits the size of heads
            ws="none",
            log_level=log_level,
            log_config=log_config,
            access_log=False,  # ours has the request's id
            limit_concurrency=settings.max_connections,
            timeout_graceful_shutdown=FLUSH_SECONDS,
            server_header=False,
        )
        super().__init__(config)

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
            self.handler.service.hurry()
        elif sig == signal.SIGINT:
            super().handle_exit(sig, frame)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.handler is not None:
            await self.handler.close()
        await super().shutdown(sockets)
