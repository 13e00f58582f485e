"""Recordings under way and done: one at a time, followed by whoever asks, kept over reloads."""

from __future__ import annotations

import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import SoonerError
from ..tasks.round_records import StoppedError

logger = logging.getLogger("sooner.demo")
MAX_JOBS = 48
"""Records that are kept for reloads."""
Recording = Callable[[Callable[[dict[str, Any]], None], Callable[[], bool]], dict[str, Any]]
"""Makes a record; handed what to tell of it meanwhile, and whether to stop."""


class Job:
    """A recording that waits, runs or has ended.

    Attributes:
        key: by which a browser finds it again; nobody guesses it.
        record: as far as it is known; `None` before anything is.
        error: why there is no whole record, in words.
        command: that does the same, where the record has none.
    """

    def __init__(self) -> None:
        self.key = secrets.token_urlsafe(16)
        self.record: dict[str, Any] | None = None
        self.error = self.command = ""
        self.is_over = self.is_stopped = False
        self._changed = threading.Condition()
        self._version = 0

    def tell(self, record: dict[str, Any]) -> None:
        with self._changed:
            self.record = {**record, "key": self.key}
            self._version += 1
            self._changed.notify_all()

    def end(self, error: str = "") -> None:
        with self._changed:
            self.error, self.is_over = error, True
            self._version += 1
            self._changed.notify_all()

    def follow(self) -> Iterator[Job]:
        """Yields the job itself, now and after every change, until it is over."""
        seen = -1
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._version != seen, 1.0)  # noqa: B023
                is_new, seen, is_over = self._version != seen, self._version, self.is_over
            if is_new:
                yield self
            if is_over:
                return


class Jobs:
    """All recordings of a server; they take turns, since they are timed.

    Args:
        make: where and when recordings are made; takes one and its two arguments. By default at
            once, in the thread that asks.
    """

    def __init__(
        self, make: Callable[..., dict[str, Any]] = lambda recording, *args: recording(*args)
    ) -> None:
        self.make = make
        self._turn, self._lock = threading.Lock(), threading.Lock()
        self._recent: OrderedDict[str, Job] = OrderedDict()

    def find(self, key: str | None) -> Job | None:
        """Returns a job that is still kept."""
        with self._lock:
            return self._recent.get(key or "")

    def begin(self, recording: Recording) -> Job:
        """Begin one in a thread; it waits for those before it."""
        job = Job()
        with self._lock:
            self._recent[job.key] = job
            while len(self._recent) > MAX_JOBS:
                self._recent.popitem(last=False)
        threading.Thread(target=self._run, args=(job, recording), daemon=True).start()
        return job

    def _run(self, job: Job, recording: Recording) -> None:
        if not self._turn.acquire(blocking=False):
            job.tell({"kind": "race", "live": "Another recording is under way; yours is next ..."})
            self._turn.acquire()
        try:
            if job.is_stopped:
                raise StoppedError("stopped before it began; run it again")
            job.tell(self.make(recording, job.tell, lambda: job.is_stopped))
            job.end()
        except SoonerError as error:
            job.end(str(error))
        except Exception as error:
            logger.exception("a recording failed")
            text = " ".join(str(error).split())
            job.end(f"{type(error).__name__}: {text} (unexpected; the server's log tells more)")
        finally:
            self._turn.release()
