"""What a command does when a signal ends it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any


@contextmanager
def _handler(number: int, handler: Callable[[int, Any], Any]) -> Iterator[None]:
    """A signal calls `handler` while the block lasts; outside the main thread nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def ended_as_interrupted() -> AbstractContextManager[None]:
    """SIGTERM is as Ctrl-C while the block lasts: what is in hand is given back, and processes that
    were started are ended."""
    return _handler(signal.SIGTERM, signal.default_int_handler)


@contextmanager
def unbroken() -> Iterator[None]:
    """Delays Ctrl-C until the block is done, so that it is never interrupted half-way.

    Raises:
        KeyboardInterrupt: afterwards, if Ctrl-C came meanwhile.
    """
    came: list[int] = []
    with _handler(signal.SIGINT, lambda number, frame: came.append(number)):
        yield
    if came:
        raise KeyboardInterrupt
