"""Attempts: what processes have begun, so that what kills them is set aside."""

from __future__ import annotations

import functools
import json
import os
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from ..checks import check_number, check_whole
from .store import MissingObjectError, ObjectInfo, Store, check_name

FOLDER = ".sooner/attempts"

MAX_ATTEMPTS = 3
"""Processes that may die at one thing before it is set aside."""

CLOCK_STEP = 2.0
"""Seconds by which the start of one process may differ when the machine's clock was set."""


class Attempts:
    """Records each attempt at a key before its work, one object an attempt.

    An attempt whose process is alive ends in `end`, however the work went. One that stays is an
    unended one: its process died. Where the processes share a machine, that is looked up; from
    another machine an attempt counts as unended when it is older than `lasts` seconds, so that
    several who work at one key at once are not taken for several deaths.

    Args:
        store: where.
        maximum: deaths after which a key is set aside.
        lasts: seconds after which an attempt of another machine counts as unended.

    Raises:
        SoonerError: `maximum` is less than 1, or `lasts` is 0 or less.
    """

    def __init__(self, store: Store, maximum: int = MAX_ATTEMPTS, lasts: float = 900.0) -> None:
        check_whole("attempts", maximum)
        check_number("lasts", lasts, 0, above=True)
        self.store, self.maximum, self.lasts = store, maximum, lasts

    def begin(self, key: str, owner: str = "") -> str:
        """Record an attempt; to be called before the work.

        Returns:
            Its name, for `end`.

        Raises:
            StorageError: it can't be recorded.
        """
        name = f"{_place_of(check_name(key))}.{uuid.uuid4().hex}.json"
        self.store.write(name, json.dumps({"owner": owner, **this_process()}).encode())
        return name

    def end(self, attempt: str) -> None:
        """Take an attempt away, whose process did not die.

        Raises:
            StorageError: it can't be taken away.
        """
        self.store.remove(attempt)

    @contextmanager
    def trying(self, key: str) -> Iterator[None]:
        """Yields while an attempt is open, which ends however the block does.

        Raises:
            StorageError: it can't be recorded.
        """
        attempt = self.begin(key)
        try:
            yield
        finally:
            self.end(attempt)

    def count(self, key: str) -> int:
        """Returns attempts at a key that never ended: their processes died.

        Raises:
            StorageError: the store can't be read.
        """
        return sum(map(self._is_dead, self.store.names(f"{_place_of(check_name(key))}.")))

    def forget(self, key: str, below: bool = False) -> None:
        """Take away all attempts at a key, or at those below it, so that they are tried anew.

        Raises:
            StorageError: one can't be taken away.
        """
        start = _place_of(check_name(key)) + ("~" if below else ".")
        for attempt in list(self.store.names(start)):
            self.store.remove(attempt.name)

    def _is_dead(self, attempt: ObjectInfo) -> bool:
        """Returns whether an attempt's process died; of another machine, whether it is older than
        `lasts`. One that has ended meanwhile did not.
        """
        try:
            record = json.loads(self.store.read(attempt.name))
        except MissingObjectError:
            return False
        except ValueError:
            record = None
        if isinstance(record, dict) and record.get("place") == _place():
            return not is_alive(record)
        return time.time() - attempt.modified > self.lasts


def _place_of(key: str) -> str:
    """Returns how the names of a key's attempts begin: in one folder, which stays."""
    return f"{FOLDER}/{key.replace('/', '~')}"


def this_process() -> dict[str, Any]:
    """Returns what tells this process from others: `place` (the machine, its boot and its space of
    process numbers), its number there, and when it started, since numbers are used again.
    """
    return {"place": _place(), "process": os.getpid(), "started": _started(os.getpid())}


def is_alive(process: dict[str, Any]) -> bool:
    """Returns whether a process of this place, as `this_process` has it, is alive."""
    started = _started(process["process"])
    return started is not None and abs(started - float(process["started"])) <= CLOCK_STEP


@functools.cache
def _place() -> str:
    parts = [socket.gethostname()]
    with suppress(OSError):  # only Linux tells these two
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _started(number: int) -> float | None:
    """Returns when a process started; `None` if there is none, or it only waits to be buried."""
    try:
        process = psutil.Process(number)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None
