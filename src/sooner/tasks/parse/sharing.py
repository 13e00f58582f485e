"""Shards of a run's documents, and the attempts at pages, so that none kills a run for ever."""

from __future__ import annotations

import hashlib
import re
import threading
from contextlib import suppress
from dataclasses import dataclass

from ...errors import SoonerError
from ...storage import Attempts, StorageError

TICK = 0.1
"""Seconds after which a thread that waits looks again."""


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


class PagesUnderWay:
    """Pages of a run that are under way: the attempt at each is recorded before its page is even
    read, so that one that kills its process leaves a trace. Threads may share it.

    Args:
        attempts: of the results' store.

    Attributes:
        is_closed: the run has ended: a thread of it that still reads must begin nothing more.
    """

    def __init__(self, attempts: Attempts) -> None:
        self._attempts, self._open = attempts, dict[str, str]()
        self._changed = threading.Condition(threading.RLock())
        self.is_closed = False

    def begin(self, key: str) -> int:
        """Begin a page that is about to be read.

        Returns:
            How many processes died at it. Where any did, nothing else is under way: what else is
            may be what kills, or not.
        """
        with self._changed:
            deaths = self._attempts.count(key)
            if deaths:
                self.wait()
            if not self.is_closed:
                self._open[key] = self._attempts.begin(key)
            return deaths

    def end(self, key: str, forget: bool = False) -> None:
        """A page has ended, and nobody died.

        Args:
            forget: earlier deaths at it, since it was parsed or set aside.
        """
        with self._changed:
            if (attempt := self._open.pop(key, None)) is not None:
                self._attempts.end(attempt)
            if forget:
                self._attempts.forget(key)
            self._changed.notify_all()

    def wait(self, key: str | None = None) -> None:
        """Wait until a page has ended, as one of the same content at another place; or all have."""
        with self._changed:
            while (self._open if key is None else key in self._open) and not self.is_closed:
                self._changed.wait(TICK)

    def close(self) -> None:
        """The run ends, however it does: nobody died, and nothing is under way any more."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()
            while self._open:
                with suppress(StorageError):  # it ends with this process
                    self._attempts.end(self._open.popitem()[1])
