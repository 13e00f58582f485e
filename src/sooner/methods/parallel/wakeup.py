"""Wakes a worker that has nothing to do. Waking never waits, however long the worker sleeps."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Protocol

LONGEST = 1 << 16
"""Bytes of a worker's last words at most."""


class Wakeup(Protocol):
    """Holds the worker's end."""

    def wait(self) -> None:
        """Until there is something new to look at; it may also return for nothing."""


class ThreadWakeup:
    """Holds both ends, for a worker in a thread of this process."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def notify(self) -> None:
        self._event.set()

    def wait(self) -> None:
        self._event.wait()
        self._event.clear()


class ParentEnd:
    """The decoder's end of a pair of sockets; the other one is a forked worker's."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        end.setblocking(False)

    def notify(self) -> None:
        """Wake the worker. Where the socket is full it will wake anyway.

        Raises:
            OSError: the worker is gone.
        """
        with contextlib.suppress(BlockingIOError):
            self._socket.send(b"\0")

    def last_words(self) -> str:
        """Returns what the worker said before it ended; nothing if it could not."""
        with contextlib.suppress(OSError):
            return self._socket.recv(LONGEST).decode(errors="replace")
        return ""

    def close(self) -> None:
        self._socket.close()


class ChildEnd:
    """Holds a forked worker's end."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def wait(self) -> None:
        """Until the decoder notifies.

        Raises:
            EOFError: the decoder closed its end, or is gone.
        """
        if not self._socket.recv(LONGEST):
            raise EOFError

    def send(self, words: str) -> None:
        """Tell the decoder why this process ends."""
        with contextlib.suppress(OSError):
            self._socket.send(words.encode()[:LONGEST], socket.MSG_DONTWAIT)

    def close(self) -> None:
        self._socket.close()


def socket_ends() -> tuple[ParentEnd, ChildEnd]:
    """Both ends, before a fork; each side closes the other's after it."""
    parent, child = socket.socketpair()
    return ParentEnd(parent), ChildEnd(child)
