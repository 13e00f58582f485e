"""The one thread that runs the model."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class ModelThread:
    """Runs calls one after the other, in the order in which they were submitted.

    An executor's threads are joined when the process exits, so a model that hangs would keep the
    process alive; this one is a daemon.
    """

    def __init__(self, name: str = "sooner-act") -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]
        self._calls = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Queue a call; the future has its result, or the exception that it raised."""
        future: Future[Any] = Future()
        self._calls.put((future, call))
        return future

    def close(self) -> None:
        """End after the calls that are queued; returns at once."""
        self._calls.put(None)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except Exception as error:
                future.set_exception(error)
            except BaseException as error:
                # `SystemExit` from a policy would end the server's event loop.
                future.set_exception(RuntimeError(f"the policy raised {type(error).__name__}"))
