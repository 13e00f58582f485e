"""Cores of what is measured and of who asks it: apart, where there are two."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


def split_cores() -> tuple[list[int] | None, list[int] | None]:
    """Cores of the server and of the clients: apart if there are two, `None` if none can be set."""
    if not hasattr(os, "sched_getaffinity"):
        return None, None
    cores = sorted(os.sched_getaffinity(0))
    return (cores[:-1], cores[-1:]) if len(cores) > 1 else (cores, cores)


def pin(cores: Sequence[int] | None) -> None:
    """Keep this thread, and what it starts, on `cores`; `None` leaves them to the system."""
    if cores is not None:
        os.sched_setaffinity(0, cores)


@contextmanager
def pinned(cores: Sequence[int] | None) -> Iterator[None]:
    """Threads and processes that start within inherit the cores of this one."""
    if cores is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def split_sentence(server: Sequence[int] | None, clients: Sequence[int] | None) -> str:
    """Which cores a server and its clients had, in words."""
    if server is None or clients is None:
        return "Server and clients are two processes, on cores that the system chose"
    if list(server) == list(clients):
        return f"Server and clients are two processes that share {_describe(server)}"
    return (
        f"The server runs on {_describe(server)}, the clients in a process on {_describe(clients)}"
    )


def _describe(numbers: Sequence[int]) -> str:
    return f"core{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
