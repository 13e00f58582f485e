"""Addresses of servers, and what these need; imports no web framework."""

from __future__ import annotations

import socket
from importlib.util import find_spec

from ..errors import SoonerError
from .settings import ServerSettings


def check_startable(settings: ServerSettings) -> None:
    """See that a server can start, before a model is loaded, which may take minutes.

    Raises:
        SoonerError: a package is not installed, or as `bind`.
    """
    for name in ("fastapi", "prometheus_client", "uvicorn", "httpx2"):
        if find_spec(name) is None:
            raise SoonerError(
                f"the server needs {name}, which is not installed; pip install 'sooner[serve]'"
            )
    bind(settings).close()


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


def url(listening: socket.socket) -> str:
    """Returns address of a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
