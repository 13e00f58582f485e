"""Sharing a run's documents and pages with other runs: shards, and attempts at pages.

None of it has to be right for results to be right: it saves work, and lets no page kill a run for
ever.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from ...checks import check_number
from ...errors import SoonerError
from ...storage import Attempts, StorageError, Store
from .page_records import PageTask
from .plan import DocumentWork, SetAsideError

LEASE = 600.0
"""Seconds for which a page is left to another machine that has it in hand."""

ATTEMPTS = 3
"""Processes that may die at a page before it is set aside."""

TICK = 0.1
"""Seconds after which a thread that waits looks again."""

WAIT = 5.0
"""Seconds, at most, until pages that others have in hand are looked at again."""


@dataclass(frozen=True)
class DocumentShard:
    """Holds a part of all documents, by a hash of their places: the same on every machine.

    A document at two places may so be in two shards; it is parsed by whoever comes first.

    Attributes:
        number: which, from 1.
        of: how many there are.
    """

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> DocumentShard:
        """Read `2/8`.

        Raises:
            SoonerError: another form, or no such shard.
        """
        match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise SoonerError(f"shard is '{text}'; write it as 1/8 to 8/8")
        return cls(int(match[1]), int(match[2]))

    def has(self, place: str) -> bool:
        digest = hashlib.sha256(place.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") % self.of == self.number - 1


@dataclass
class Claims:
    """Pages that a run has in hand: attempts at them, each recorded before its page is even read.
    Other runs leave these pages alone, and a page that kills its process is set aside.

    Threads may share it.

    Attributes:
        store: of the results.
        lease: seconds for which a page of another machine is left to it; `None` leaves nothing to
            others.
        attempts: deaths after which a page is set aside; 0 for never.
        fresh: earlier deaths are forgotten.
    """

    store: Store
    lease: float | None = LEASE
    attempts: int = ATTEMPTS
    fresh: bool = False
    _open: dict[str, tuple[str, float]] = field(default_factory=dict)  # attempt, and since when

    def __post_init__(self) -> None:
        if self.lease is not None:
            check_number("lease", self.lease, 0, above=True)
        self._owner = f"{socket.gethostname()}:{os.getpid()}"
        self._attempts = Attempts(self.store, self.attempts or sys.maxsize)
        self._changing = threading.Condition(threading.RLock())
        self._in_flight = 0
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether the run has ended: a thread of it that still reads must claim nothing more."""
        return self._is_over

    def look(self, work: DocumentWork) -> None:
        """Find out at which pages of a document too many processes died."""
        if not work.todo:
            return
        begins = work.task(0).key.rpartition("/")[0] + "/"
        if self.fresh:
            for key in self._attempts.keys(begins):
                self._attempts.forget(key)
            return
        attempts = self._attempts.set_aside(begins).items()
        dying = {int(key.rpartition("/")[2]): reason for key, reason in attempts}
        work.dying |= {number: dying[number] for number in work.left if number in dying}

    @contextmanager
    def opening(self, task: PageTask) -> Iterator[None]:
        """A document is about to be opened, as its page 0.

        Raises:
            SetAsideError: that killed too many processes.
        """
        if self.fresh:
            self._attempts.forget(task.key)
        reason = self._attempts.reason(task.key)
        if reason is not None:
            raise SetAsideError(reason)
        with self._attempts.trying(task.key, self._owner):
            yield

    def begin(self, task: PageTask) -> int | None:
        """Begin a page that is about to be read.

        Returns:
            How many processes died at it; `None` if somebody has it in hand, this run included, or
            the run is over.
        """
        with self._changing:
            if self._is_over or task.key in self._open:
                return None
            now = time.monotonic()
            if self.lease is None:
                deaths = self._attempts.count(task.key)
                attempt = self._attempts.begin(task.key, self._owner)
            elif (result := self._attempts.take(task.key, self._owner, self.lease)) is not None:
                attempt, deaths = result
            else:
                return None
            self._open[task.key] = attempt, now
            return deaths

    def end(self, task: PageTask, forget: bool = False) -> None:
        """A page has ended, and nobody died.

        Args:
            forget: earlier deaths at it, since it was parsed or set aside.
        """
        with self._changing:
            attempt, _ = self._open.pop(task.key, (None, 0.0))
            if attempt is not None:
                self._attempts.end(attempt)
            if forget:
                self._attempts.forget(task.key)

    def sent(self) -> None:
        """A page was read, and goes on its way."""
        with self._changing:
            self._in_flight += 1

    def note_saved(self, task: PageTask, forget: bool = False) -> None:
        """Record that a page that was `sent` is saved; see `end`."""
        with self._changing:
            self._in_flight -= 1
            self._changing.notify_all()
            self.end(task, forget)
            now = time.monotonic()
            for key, (attempt, since) in self._open.items():
                if self.lease is not None and now - since > self.lease / 2:
                    self._attempts.renew(attempt, self._owner)
                    self._open[key] = attempt, now

    def alone(self) -> None:
        """Wait until no page is in flight, so that only the next one can kill this process."""
        with self._changing:
            while self._in_flight and not self._is_over:
                self._changing.wait(TICK)

    def wait(self, seconds: float) -> None:
        """Give others time."""
        end = time.monotonic() + random.uniform(0.5, 1.0) * seconds  # apart from others who wait
        with self._changing:
            while not self._is_over and time.monotonic() < end:
                self._changing.wait(TICK)

    def close(self) -> None:
        """The run ends, however it does: nobody died, and nothing is in hand any more."""
        with self._changing:
            self._is_over = True
            self._changing.notify_all()
            while self._open:
                _, (attempt, _) = self._open.popitem()
                with suppress(StorageError):  # it ends with this process
                    self._attempts.end(attempt)
