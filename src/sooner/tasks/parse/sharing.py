"""Sharing a run's documents and pages with other runs: shards, leases, attempts.

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
from itertools import groupby

from ...documents import PageRange
from ...errors import SoonerError
from ...storage import Attempts, StorageError, Store
from .page_records import PageTask, page_key
from .plan import DocumentWork, SetAsideError

CHUNK = 16
"""Pages of a document that one lease is about: worth two requests to a store."""

LEASE = 600.0
"""Seconds that a lease lasts where its owner can't be seen to be gone."""

LEASES = ".sooner/leases"
"""Folder of leases: attempts at chunks."""

ATTEMPTS = 3
"""Processes that may die at a page before it is set aside."""

TICK = 0.1
"""Seconds after which a thread that waits looks again."""

WAIT = 5.0
"""Seconds, at most, until pages that others have in hand are looked at again."""


@dataclass(frozen=True)
class DocumentShard:
    """A part of all documents, by a hash of their places: the same on every machine.

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
class Chunk:
    """Pages of a document that are read one after the other, under one lease.

    Attributes:
        work: the document.
        numbers: of the pages.
        pages: the same.
        key: of the lease.
        read: seconds that reading each of its pages took, by number, so far.
        under_way: pages of it that have been read and have not ended.
        is_read: all of its pages have been read.
    """

    work: DocumentWork
    numbers: list[int]
    pages: PageRange
    key: str
    read: dict[int, float] = field(default_factory=dict, compare=False)
    under_way: int = field(default=0, compare=False)
    is_read: bool = field(default=False, compare=False)

    @classmethod
    def of_document(cls, work: DocumentWork, *numbers: int) -> Chunk:
        """Returns a document, or pages of it, that nobody reads."""
        return cls(work, [*numbers], PageRange(()), "")

    @property
    def is_done(self) -> bool:
        return self.is_read and not self.under_way


def chunks_of(work: DocumentWork, size: int) -> list[Chunk]:
    """Returns the pages of a document that are to be read, in order, in parts of `size`."""
    left = [number for number in work.left if number not in work.dying]
    groups = [list(group) for _, group in groupby(left, lambda number: (number - 1) // size)]
    if not groups and work.todo > len(work.dying):
        groups = [[]]  # what is wrong with the document as a whole
    chunks = []
    for group in groups:
        key = page_key(work.input_hash, work.settings_hash, (group[0] - 1) // size if group else 0)
        chunks.append(
            Chunk(work, group, PageRange(tuple((number, number) for number in group)), key)
        )
    return chunks


@dataclass
class Claims:
    """What a run has in hand: leases of chunks, and attempts at pages, which are recorded before
    a page is even read.

    Threads may share it.

    Attributes:
        store: of the results.
        lease: seconds that a lease lasts; `None` for none.
        attempts: deaths after which a page is set aside; 0 for never.
        fresh: earlier deaths are forgotten.
    """

    store: Store
    lease: float | None = LEASE
    attempts: int = ATTEMPTS
    fresh: bool = False
    _open: dict[str, str] = field(default_factory=dict)
    _chunks: dict[str, tuple[str, float]] = field(default_factory=dict)  # lease, and since when

    def __post_init__(self) -> None:
        self._owner = f"{socket.gethostname()}:{os.getpid()}"
        self._attempts = Attempts(self.store, self.attempts) if self.attempts else None
        self._leases = None
        if self.lease is not None:
            self._leases = Attempts(self.store, lasts=self.lease, folder=LEASES)
        self._changing = threading.Condition(threading.RLock())
        self._in_flight = 0
        self._is_over = False

    @property
    def chunk(self) -> int:
        """Pages of a document that are read under one lease; all of them without leases."""
        return CHUNK if self._leases is not None else sys.maxsize

    @property
    def is_over(self) -> bool:
        """Whether the run has ended: a thread of it that still reads must claim nothing more."""
        return self._is_over

    def take(self, key: str) -> bool:
        """Get the lease of a chunk, if nobody has it (this run neither) and the run goes on."""
        with self._changing:
            if self._is_over or key in self._chunks:
                return False
            if self._leases is None:
                return True
            began, lease = time.monotonic(), self._leases.take(key, self._owner)
            if lease is not None:
                self._chunks[key] = lease, began
            return lease is not None

    def done(self, key: str) -> None:
        """A chunk is done; its lease goes."""
        with self._changing:
            lease, _ = self._chunks.pop(key, (None, 0.0))
            if self._leases is not None and lease is not None:
                self._leases.end(lease)

    def _renew(self) -> None:
        """Renew leases that are half over."""
        now = time.monotonic()
        for key, (lease, since) in self._chunks.items():
            if self._leases is not None and now - since > self._leases.lasts / 2:
                self._leases.renew(lease, self._owner)
                self._chunks[key] = lease, now

    def look(self, work: DocumentWork) -> None:
        """Find out at which pages of a document processes died."""
        if self._attempts is None or not work.todo:
            return
        begins = work.task(0).key.rpartition("/")[0] + "/"
        tried = self._attempts.keys(begins)
        if self.fresh:
            for key in tried:
                self._attempts.forget(key)
        elif tried:
            work.tried = {_number(key) for key in tried}
            attempts = self._attempts.set_aside(begins).items()
            dying = {_number(key): reason for key, reason in attempts}
            work.dying |= {number: dying[number] for number in work.left if number in dying}

    @contextmanager
    def opening(self, task: PageTask) -> Iterator[None]:
        """A document is about to be opened, as its page 0.

        Raises:
            SetAsideError: that killed too many processes.
        """
        if self._attempts is None:
            yield
            return
        if self.fresh:
            self._attempts.forget(task.key)
        reason = self._attempts.reason(task.key)
        if reason is not None:
            raise SetAsideError(reason)
        with self._attempts.trying(task.key, self._owner):
            yield

    def begin(self, task: PageTask) -> None:
        """A page is about to be read."""
        with self._changing:
            if self._attempts is not None and not self._is_over and task.key not in self._open:
                self._open[task.key] = self._attempts.begin(task.key, self._owner)

    def end(self, task: PageTask) -> None:
        """Nobody died at a page."""
        with self._changing:
            attempt = self._open.pop(task.key, None)
            if self._attempts is not None and attempt is not None:
                self._attempts.end(attempt)

    def sent(self) -> None:
        """A page was read, and goes on its way."""
        with self._changing:
            self._in_flight += 1

    def note_saved(self, task: PageTask, forget: bool = False) -> None:
        """What became of a page is written.

        Args:
            forget: earlier deaths at it, since it was parsed or set aside.
        """
        with self._changing:
            self._in_flight -= 1
            self._changing.notify_all()
            self.end(task)
            if self._attempts is not None and forget:
                self._attempts.forget(task.key)
            self._renew()

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
                _, attempt = self._open.popitem()
                if self._attempts is not None:
                    with suppress(StorageError):
                        self._attempts.end(attempt)
            for key in [*self._chunks]:
                with suppress(StorageError):  # it ends with this process
                    self.done(key)


def _number(key: str) -> int:
    return int(key.rpartition("/")[2])
