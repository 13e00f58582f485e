"""Runs the server process: binds the socket, runs uvicorn, shuts down gracefully."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import SoonerError
from .settings import ServerSettings, ServeSettings

if TYPE_CHECKING:
    from ..tasks.act.policy import Policy


def require() -> None:
    """See that everything a server needs is installed.

    Raises:
        SoonerError: something is not; says how to get it.
    """
    try:
        import fastapi
        import prometheus_client
        import uvicorn
    except ImportError as error:
        raise SoonerError(
            f"the server needs {error.name}, which is not installed; pip install 'sooner[serve]'"
        ) from error
    del fastapi, prometheus_client, uvicorn


def serve(
    policy: Policy,
    settings: ServeSettings,
    on_ready: Callable[[str], None] = lambda url: None,
    log_level: str = "warning",
) -> None:
    """Serve until the process is told to stop (SIGINT, SIGTERM); then answer what is under way.

    Args:
        on_ready: told the address once requests are taken.
        log_level: uvicorn's.

    Raises:
        SoonerError: the address is taken, a package is missing, a method can't be run, or the
            policy was lost.
    """
    require()
    with bind(settings) as listening:
        server = build_server(policy, settings, lambda: on_ready(url(listening)), log_level)
        server.run(sockets=[listening])
    if server.is_broken():
        raise SoonerError("the policy was lost, and the server ended; the log tells more")


def build_server(
    policy: Policy,
    settings: ServeSettings,
    on_ready: Callable[[], None] = lambda: None,
    log_level: str = "warning",
) -> Any:
    """Returns a server whose `run(sockets=[...])` serves until `should_exit` is set."""
    from .act import create_app
    from .refusal import act_refused
    from .server import DrainingServer

    app = create_app(policy, settings, on_ready)
    handler = app.state.handler
    thread = handler.thread
    return DrainingServer(
        app, settings, log_level, handler.close, thread.has_failed, act_refused, thread.hurry
    )


def bind(settings: ServerSettings) -> socket.socket:
    """Returns a listening socket of the address.

    Raises:
        SoonerError: it is taken, or none of this machine's.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # With the protocol left at 0, asyncio does not know accepted sockets for TCP and leaves Nagle's
    # algorithm on: the second packet of an answer waits 40 ms for an acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise SoonerError(
            f"can't listen on {settings.host} port {settings.port}: {error.strerror}; give another "
            "--port (0 takes a free one) or --host"
        ) from error
    return listening


def check_address(settings: ServerSettings) -> None:
    """Refuse an address that can't be had before a model is loaded, which may take minutes.

    Raises:
        SoonerError: as `bind`.
    """
    bind(settings).close()


def url(listening: socket.socket) -> str:
    """Returns address of a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
