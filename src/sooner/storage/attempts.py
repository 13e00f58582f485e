"""Attempts: what processes have begun, so that what kills them is set aside."""

from __future__ import annotations

import functools
import json
import os
import socket
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checks import check_number, check_whole
from .store import MissingObjectError, ObjectInfo, Store, check_name

FOLDER = ".sooner/attempts"

MAX_ATTEMPTS = 3
"""Processes that may die at one thing before it is set aside."""


class Attempts:
    """Records each attempt at a key before its work, one object an attempt.

    An attempt whose process is alive ends in `end`, however the work went. One that stays is an
    unended one: its process died. Where the processes share a machine, that is looked up; from
    another machine an attempt counts as unended when it is older than `lasts` seconds by the
    store's clock, so that several who work at one key at once are not taken for several deaths.

    Args:
        store: where.
        maximum: deaths after which a key is set aside.
        lasts: seconds after which an attempt of another machine counts as unended.
        folder: of the objects.

    Raises:
        SoonerError: `maximum` is less than 1, or `lasts` is 0 or less.
    """

    def __init__(
        self, store: Store, maximum: int = MAX_ATTEMPTS, lasts: float = 900.0, folder: str = FOLDER
    ) -> None:
        check_whole("attempts", maximum)
        check_number("lasts", lasts, 0, above=True)
        self.store, self.maximum, self.lasts, self.folder = store, maximum, lasts, folder

    def begin(self, key: str, owner: str = "") -> str:
        """Record an attempt; to be called before the work.

        Returns:
            Its name, for `end`.

        Raises:
            StorageError: it can't be recorded.
        """
        name = f"{self.folder}/{check_name(key)}/{uuid.uuid4().hex}.json"
        record = {"owner": owner, "host": socket.gethostname(), **this_process().report()}
        self.store.write(name, json.dumps(record).encode())
        return name

    def end(self, attempt: str) -> None:
        """Take an attempt away, whose process did not die.

        Raises:
            StorageError: it can't be taken away.
        """
        self.store.remove(attempt)

    @contextmanager
    def trying(self, key: str, owner: str = "") -> Iterator[None]:
        """An attempt that lasts as long as the block, and ends however that ends.

        Raises:
            StorageError: it can't be recorded.
        """
        attempt = self.begin(key, owner)
        try:
            yield
        finally:
            self.end(attempt)

    def count(self, key: str) -> int:
        """Returns attempts at a key that never ended.

        Raises:
            StorageError: the store can't be read.
        """
        return self._dead(self._of_key(key))

    def reason(self, key: str) -> str | None:
        """Returns why a key is set aside, in one line; `None` if it is not.

        Raises:
            StorageError: the store can't be read.
        """
        return self.set_aside(f"{check_name(key)}/").get(key)

    def set_aside(self, prefix: str = "") -> dict[str, str]:
        """Returns keys that begin so and are set aside, with the reason of each.

        The reason is the same whoever died, so that results are; who it was is in the objects. One
        listing, whatever the number of keys; objects are read only of those that have `maximum`.

        Raises:
            StorageError: the store can't be read.
        """
        result = {}
        died = "a process" if self.maximum == 1 else f"{self.maximum} processes"
        for key, attempts in self._of(prefix).items():
            if len(attempts) >= self.maximum and self._dead(attempts) >= self.maximum:
                result[key] = f"{died} died at it; it is set aside"
        return result

    def keys(self, prefix: str = "") -> set[str]:
        """Returns keys that begin so and have attempts that have not ended, of whatever process.

        Raises:
            StorageError: the store can't be read.
        """
        return set(self._of(prefix))

    def forget(self, key: str) -> None:
        """Take away all attempts at a key, so that it is tried anew.

        Raises:
            StorageError: one can't be taken away.
        """
        for attempt in self._of_key(key):
            self.store.remove(attempt.name)

    def _of(self, prefix: str) -> dict[str, list[ObjectInfo]]:
        """Returns attempts by key."""
        attempts = defaultdict(list)
        for entry in self.store.names(f"{self.folder}/{prefix}"):
            key, _, name = entry.name.removeprefix(f"{self.folder}/").rpartition("/")
            if name.endswith(".json"):
                attempts[key].append(entry)
        return attempts

    def _of_key(self, key: str) -> list[ObjectInfo]:
        return self._of(f"{check_name(key)}/").get(key, [])

    def _dead(self, attempts: list[ObjectInfo]) -> int:
        """Returns how many of them never ended: their processes died."""
        return sum(self._is_alive(attempt) is False for attempt in attempts)

    def _is_alive(self, attempt: ObjectInfo) -> bool | None:
        """Returns whether an attempt is under way, of another machine if it is no older than
        `lasts`; `None` if it has ended.
        """
        with suppress(MissingObjectError):
            is_alive = WorkerProcess.of(self._read(attempt)).is_alive()
            if is_alive is None:
                is_alive = self.store.now() - attempt.modified <= self.lasts
            return is_alive
        return None

    def _read(self, attempt: ObjectInfo) -> dict[str, Any]:
        data = self.store.read(attempt.name)
        with suppress(ValueError):
            record = json.loads(data)
            if isinstance(record, dict):
                return record
        return {}


@dataclass(frozen=True)
class WorkerProcess:
    """A process, so that another one may look whether it is alive.

    Attributes:
        place: machine, boot and space of process numbers; processes of one place see each other.
        number: its number there.
        started: when, by the machine's own count; numbers are used again.
    """

    place: str
    number: int
    started: str

    @classmethod
    def of(cls, data: dict[str, Any]) -> WorkerProcess:
        return cls(
            str(data.get("place", "")), int(data.get("process", 0)), str(data.get("started", ""))
        )

    def report(self) -> dict[str, Any]:
        return {"place": self.place, "process": self.number, "started": self.started}

    def is_alive(self) -> bool | None:
        """Returns whether it is; `None` if it can't be seen from here."""
        if self.place != _place():
            return None
        started = _started(self.number)
        if started is None and _is_hidden(self.number):
            return None
        return self.started == started


def this_process() -> WorkerProcess:
    """Returns the process that asks."""
    return WorkerProcess(_place(), os.getpid(), _started(os.getpid()) or "")


@functools.cache
def _place() -> str:
    parts = [socket.gethostname()]
    with suppress(OSError):  # only Linux tells these two
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _started(number: int) -> str | None:
    """When a process started; `None` if there is none, or it only waits to be buried."""
    try:
        # The name in brackets may hold anything; behind it: state, ..., start in ticks (22nd).
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
        return _started_elsewhere(number)
    return None if fields[0] in "ZX" else fields[19]


def _is_hidden(number: int) -> bool:
    """Returns whether there is a process of another user, which `/proc` may not show."""
    if not Path("/proc/self/stat").exists():
        return False
    try:
        os.kill(number, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        pass
    return False


def _started_elsewhere(number: int) -> str | None:
    """Returns when a process started, without `/proc`."""
    import psutil

    try:
        process = psutil.Process(number)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return f"{process.create_time():.1f}"
    except psutil.Error:
        return None
