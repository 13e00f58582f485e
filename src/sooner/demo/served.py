"""The page of `sooner serve`: recordings run in the engine's thread, on the served model."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any

from fastapi import FastAPI
from starlette.responses import RedirectResponse
from starlette.routing import Mount

from ..errors import SoonerError
from ..serve.engine_thread import EngineThread
from ..tasks.loading import ModelPair
from .page import build_page, mount_page
from .recorder import Recorder, Recording
from .site import PagePolicy
from .tabs import tasks_of

PATH = "/page"
LOOK = 0.2
"""Seconds between two looks whether a recording that waits for the engine was stopped."""


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


def record_between(
    service: EngineThread,
    recording: Recording,
    tell: Callable[[dict[str, Any]], None],
    is_stopped: Callable[[], bool],
) -> dict[str, Any]:
    """Make a recording in the engine's thread, between the requests of clients.

    Raises:
        SoonerError: a request came, or the server stops; or what the recording raises.
    """
    done: Future[dict[str, Any]] = Future()
    gave_way = False

    def work(is_needed: Callable[[], bool]) -> None:
        if not done.set_running_or_notify_cancel():
            return

        def is_over() -> bool:
            nonlocal gave_way
            gave_way = gave_way or is_needed()
            return gave_way or is_stopped()

        try:
            done.set_result(recording(tell, is_over))
        except Exception as error:
            done.set_exception(error)

    load = service.load()
    if load.running + load.waiting:
        tell({"kind": "race", "live": "Clients are being answered; yours is next ..."})
    service.when_idle(work)
    while True:
        try:
            return done.result(LOOK)
        except CancelledError as error:
            raise SoonerError(
                "stopped before it began; run it again"
                if is_stopped()
                else f"the engine is {service.state}; run it again once it is ready"
            ) from error
        except SoonerError as error:
            if gave_way:
                raise SoonerError("a client's request came first; run it again") from error
            raise
        except TimeoutError:
            if done.done():
                raise  # the recording's own
            if is_stopped() or service.state != "ready":
                done.cancel()  # not if it runs: it asks for itself
