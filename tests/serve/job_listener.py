"""A client of the engine's thread in tests, and the thread around a stub."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from serve.stub_engine import StubEngine, request_of
from sooner.serve.engine_thread import EngineThread, ServedRequest, Tokens

WAIT = 60
"""Seconds after which a test gives up; none depends on how long things take."""
PROMPT = [5, 6, 7]


class Listener:
    """A client that keeps its events and can wait for them."""

    def __init__(self, limit: int = 20, *, seed: int = 1, due: float | None = None) -> None:
        self.events: list[Tokens | None] = []
        self.ended, self.began = threading.Event(), threading.Event()
        now = time.monotonic()
        self.request = request_of(
            f"request {seed}", PROMPT, limit, sink=self.record, arrived=now,
            deadline=None if due is None else now + due, seed=seed,
        )  # fmt: skip

    def record(self, event: Tokens | None) -> None:
        self.events.append(event)
        self.began.set()
        if event is None:
            self.ended.set()

    @property
    def ids(self) -> list[int]:
        return [token for event in self.events if event is not None for token in event.ids]

    def wait(self) -> ServedRequest:
        assert self.ended.wait(WAIT)
        assert self.events[-1] is None
        return self.request


class Gate:
    """Holds a stub's steps until it is opened."""

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.is_reached = threading.Event()

    def __call__(self, seconds: float) -> None:
        self.is_reached.set()
        assert self.is_open.wait(WAIT)


@contextmanager
def running(
    engine: Callable[[], StubEngine] = StubEngine, **options: Any
) -> Iterator[EngineThread]:
    service = EngineThread(engine, **options)
    service.start()
    until(lambda: service.state != "warming")
    try:
        yield service
    finally:
        service.close(0)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)
