"""Recordings, made one after the other and followed by the page that began them."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

from ..errors import SoonerError
from ..tasks.round_records import StoppedError

logger = logging.getLogger("sooner.demo")
Recording = Callable[[Callable[[dict[str, Any]], None], Callable[[], bool]], dict[str, Any]]
"""Makes a record; handed what to tell of it meanwhile, and whether to stop."""


class Recorder:
    """Makes all recordings of a server; they take turns, since they are timed.

    Args:
        make: where and when recordings are made; takes one and its two arguments. By default at
            once, in a thread.
    """

    def __init__(
        self, make: Callable[..., dict[str, Any]] = lambda recording, *args: recording(*args)
    ) -> None:
        self.make = make
        self._turn = threading.Lock()

    def follow(self, recording: Recording, stopped: threading.Event) -> Iterator[dict[str, Any]]:
        """Yields the record as far as it is known, whenever more of it is; the last is whole.

        Args:
            stopped: ends it, if set.

        Raises:
            SoonerError: why there is no whole record, in words.
        """
        updates: SimpleQueue[dict[str, Any] | SoonerError | None] = SimpleQueue()

        def tell(record: dict[str, Any]) -> None:
            if updates.empty():  # else the page has not shown the one before
                updates.put(record)

        def work() -> None:
            if not self._turn.acquire(blocking=False):
                tell({"kind": "race", "live": "Another recording is under way; yours is next ..."})
                self._turn.acquire()
            try:
                if stopped.is_set():
                    raise StoppedError("stopped before it began; run it again")
                updates.put(self.make(recording, tell, stopped.is_set))
            except SoonerError as error:
                updates.put(error)
            except Exception as error:
                logger.exception("a recording failed")
                text = f"{type(error).__name__}: {' '.join(str(error).split())}"
                updates.put(SoonerError(f"{text} (unexpected; the server's log tells more)"))
            finally:
                self._turn.release()
                updates.put(None)

        threading.Thread(target=work, daemon=True).start()
        key = uuid.uuid4().hex  # by which the player knows that it is the same recording
        for update in iter(updates.get, None):
            if isinstance(update, SoonerError):
                raise update
            yield {**update, "key": key}
