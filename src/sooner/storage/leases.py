"""Leases: who works at what, told by objects in a store; they save work, nothing rests on them."""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from dataclasses import dataclass

from ..checks import check_number
from .attempts import WorkerProcess, this_process
from .store import MissingObjectError, ObjectInfo, StorageError, Store, check_name, passed

FOLDER = ".sooner/leases"

DIGITS = 10


@dataclass(frozen=True)
class _Lease:
    """A lease that this owner has.

    Attributes:
        number: of its object.
        until: seconds of `passed` at which it is over.
        mark: that tells its object from others' of the same number.
    """

    number: int
    until: float
    mark: str


class Leases:
    """Leases of one owner, in the manner of olmOCR's work queue, but for whose clock counts.

    A lease is an object `KEY/NUMBER`, which is created and never changed: taking, renewing and
    giving back each create the next number, so where the store refuses second creators
    (`can_create`) exactly one of several takers gets an expired lease. The object of the highest
    number counts. It is over when the store's own clock says that it is older than its seconds, or
    its owner was a process of this machine that is no more; he himself counts from before he asked
    for it, so he lets it go first. What any machine takes for the time of day plays no part.

    Where the store can't refuse, two may hold a lease at once, as two may whose lease ran out
    while they were at work. Both then do the same work, and write the same.

    For one thread.

    Args:
        store: where.
        owner: told to people; two owners of one name still are two.
        seconds: that a lease lasts; longer than a piece of work between two `renew_due`.
        folder: of the objects.

    Raises:
        SoonerError: `seconds` is 0 or less.
    """

    def __init__(
        self, store: Store, owner: str, seconds: float = 600.0, folder: str = FOLDER
    ) -> None:
        check_number("lease", seconds, 0, above=True)
        self.store, self.owner, self.seconds, self.folder = store, owner, seconds, folder
        self._leases: dict[str, _Lease] = {}

    def take(self, key: str) -> bool:
        """Get the lease of a key that nobody has, or whose lease is over.

        Returns:
            Whether this owner has it now.

        Raises:
            StorageError: the store can't be read or written.
        """
        if self.holds(key):
            return True
        latest = self._latest(key)
        if latest is not None and not self._is_over(latest):
            return False
        return self._next(key, 1 if latest is None else _number(latest) + 1)

    def holds(self, key: str) -> bool:
        """Returns whether this owner has a lease that is not over; asks nobody."""
        lease = self._leases.get(key)
        if lease is not None and passed() >= lease.until:
            del self._leases[key]
            return False
        return lease is not None

    def renew(self, key: str) -> bool:
        """Begin the seconds of a lease anew.

        Returns:
            Whether this owner still has it; if it was over, `take` may get it back.

        Raises:
            StorageError: the store can't be read or written.
        """
        if not self.holds(key):
            return False
        number = self._leases.pop(key).number + 1
        return self._next(key, number)

    def renew_due(self) -> None:
        """Renew what is more than half over; to be called between two pieces of work.

        Raises:
            StorageError: the store can't be read or written.
        """
        for key, lease in list(self._leases.items()):
            if lease.until - passed() < self.seconds / 2:
                self.renew(key)

    def release(self, key: str) -> None:
        """Give a lease back, so that others need not wait for its end.

        Raises:
            StorageError: the store can't be read or written.
        """
        if self.holds(key):
            number = self._leases.pop(key).number + 1
            if self.store.create(self._name(key, number), self._content(0.0, "")):
                self._clear(key, number)

    def forget(self, key: str) -> None:
        """Give a lease back whose work is done: nothing of it is left.

        Its numbers begin anew, so somebody who looked before may then have it beside another one;
        both find the work done.

        Raises:
            StorageError: the store can't be read or written.
        """
        lease = self._leases.pop(key, None)
        if lease is not None:
            self._clear(key, lease.number + 1)

    def holder(self, key: str) -> str | None:
        """Whose lease of a key is not over; `None` for nobody's.

        Raises:
            StorageError: the store can't be read.
        """
        latest = self._latest(key)
        if latest is None or self._is_over(latest):
            return None
        with suppress(MissingObjectError):  # whoever went on meanwhile is asked for next time
            return str(self._read(latest).get("owner", ""))
        return None

    def _next(self, key: str, number: int) -> bool:
        """Take a number, if nobody else does, and nobody is ahead of it."""
        began, mark = passed(), uuid.uuid4().hex
        name = self._name(key, number)
        if not self.store.create(name, self._content(self.seconds, mark)):
            return False
        try:
            is_mine = self._is_mine(key, number, mark)
        except StorageError:
            with suppress(StorageError):
                self.store.remove(name)
            raise
        if not is_mine:
            return False
        self._leases[key] = _Lease(number, began + self.seconds, mark)
        self._clear(key, number)
        return self.holds(key)

    def _is_mine(self, key: str, number: int, mark: str) -> bool:
        """Returns whether the object that was just created is the one that counts."""
        # A number may be free because it was cleared away after others had gone on.
        latest = self._latest(key)
        if latest is None or _number(latest) != number:
            self.store.remove(self._name(key, number))
            return False
        # Of two creators that were not told apart, the last one's object is there.
        return self.store.can_create or self._read(latest).get("mark") == mark

    def _latest(self, key: str) -> ObjectInfo | None:
        """Returns the object of the highest number."""
        entries = list(self._objects(key))
        return max(entries, key=_number, default=None)

    def _objects(self, key: str) -> list[ObjectInfo]:
        begins = f"{self.folder}/{check_name(key)}/"
        entries = self.store.names(begins)
        return [entry for entry in entries if entry.name.removeprefix(begins).isdecimal()]

    def _is_over(self, lease: ObjectInfo) -> bool:
        try:
            data = self._read(lease)
        except MissingObjectError:
            return False  # somebody has gone on to the next number
        if WorkerProcess.of(data).is_alive() is False:  # on this machine, which knows
            return True
        seconds = data.get("seconds")
        if not isinstance(seconds, int | float):
            seconds = self.seconds
        return seconds == 0 or self.store.now() - lease.modified > seconds + self.store.tick

    def _clear(self, key: str, number: int) -> None:
        """Take away what is behind a number."""
        with suppress(StorageError):  # the next one does it
            for entry in self._objects(key):
                if _number(entry) < number:
                    self.store.remove(entry.name)

    def _read(self, lease: ObjectInfo) -> dict[str, object]:
        data = self.store.read(lease.name)
        with suppress(ValueError):
            content = json.loads(data)
            if isinstance(content, dict):
                return content
        return {}  # nobody's work is lost by waiting for its end

    def _content(self, seconds: float, mark: str) -> bytes:
        content = {"owner": self.owner, "seconds": seconds, "mark": mark, **this_process().report()}
        return json.dumps(content).encode()

    def _name(self, key: str, number: int) -> str:
        return f"{self.folder}/{check_name(key)}/{number:0{DIGITS}d}"


def _number(lease: ObjectInfo) -> int:
    return int(lease.name.rpartition("/")[2])
