"""A store: named objects below a folder or a URL, each whole or not there."""

from __future__ import annotations

import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import SoonerError

Data = bytes | Iterable[bytes]
"""What an object is written of: its bytes, or pieces of them."""


class StorageError(SoonerError):
    """A store can't be reached, or refuses to read or write; names the object and the way out."""


class ObjectError(StorageError):
    """An object can't be read or written, while others can: it is its name, its folder or what lies
    in its place that is at fault."""


class MissingObjectError(StorageError):
    """An object is not there."""


@dataclass(frozen=True)
class ObjectInfo:
    """An object, as a listing shows it.

    Attributes:
        name: below the store.
        size: in bytes.
        modified: when it was written, in seconds of the store's own clock.
    """

    name: str
    size: int
    modified: float


class Store(ABC):
    """Objects by name below a folder or a URL; `open_store` makes one.

    A name is a path with `/`, such as `pages/12ab/000001.json`. An object appears whole or not at
    all, and of several writers the last one wins; no two of them share a temporary name, and
    nothing is renamed where renaming is a copy. A store can be pickled, and shared by threads; a
    forked process opens its own.

    Attributes:
        root: the folder or the URL, as it was given.
        tick: seconds that the times of this store may be apart from its clock.
    """

    root: str
    tick: float = 1.0

    def __init__(self) -> None:
        self._clock = StoreClock()
        self._refuses: bool | None = None

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Returns the bytes of an object.

        Raises:
            MissingObjectError: it is not there.
            StorageError: it can't be read.
        """

    @abstractmethod
    def write(self, name: str, data: Data) -> None:
        """Put an object there, in place of the one before it.

        Raises:
            StorageError: it can't be written; the one before it stays.
        """

    @abstractmethod
    def create(self, name: str, data: Data) -> bool:
        """Put an object there if there is none of this name.

        Returns:
            Whether this call made it. Where `can_create` is false, two callers at once may both be
            told so.

        Raises:
            StorageError: it can't be written.
        """

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Returns whether an object is there.

        Raises:
            StorageError: the store can't tell.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Take an object away; one that is not there is none to take away.

        Raises:
            StorageError: it can't be removed.
        """

    @abstractmethod
    def names(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Objects whose names begin so, in no order, read as they are asked for.

        Raises:
            StorageError: the store can't be listed.
        """

    @abstractmethod
    def url(self, name: str = "") -> str:
        """Returns where an object is, for people and for fsspec."""

    @abstractmethod
    def _server_time(self) -> float:
        """Returns seconds of the store's clock, asked for now."""

    @abstractmethod
    def _may_refuse(self) -> bool:
        """Returns whether stores of this kind can refuse the second creator at all."""

    def local_path(self, name: str = "") -> Path | None:
        """Returns the file of an object; `None` where objects are no files of this machine."""
        return None

    def now(self) -> float:
        """Returns seconds of the store's own clock.

        The store is asked once a minute; what passes in between is counted here, by a clock that
        nobody sets. What this machine believes the time of day is plays no part.
        """
        return self._clock.read(self._server_time)

    @property
    def can_create(self) -> bool:
        """Whether of several creators of a name exactly one is told so; it is tried out once.

        Raises:
            StorageError: the store can't be written.
        """
        if self._refuses is None:
            refuses = self._may_refuse() and self._tried()
            if self._refuses is None:  # else the store said meanwhile that it can't
                self._refuses = refuses
        return self._refuses

    def _tried(self) -> bool:
        probe = f".sooner/probe/{uuid.uuid4().hex}"
        try:
            return self.create(probe, b"first") and not self.create(probe, b"second")
        finally:
            self.remove(probe)

    def check(self) -> None:
        """Refuse a store that can't be written and read, before any work.

        Raises:
            StorageError: says what failed.
        """
        probe = f".sooner/probe/{uuid.uuid4().hex}"
        try:
            self.write(probe, b"probe")
        except StorageError as error:  # which is about the place, not about this object
            reason = str(error).replace(f"/{probe}", "").replace("object '", "store '", 1)
            raise StorageError(reason) from error
        try:
            if self.read(probe) != b"probe":
                raise StorageError(f"'{self.root}' gives back other bytes than were written to it")
        finally:
            self.remove(probe)

    def sweep(self, older: float = 86400.0) -> int:
        """Take away what killed writers left, of `older` seconds or more; returns how many.

        Raises:
            StorageError: the store can't be listed.
        """
        return 0


class StoreClock:
    """Another clock, asked now and then and followed in between.

    Args:
        keeps: seconds for which an answer is followed.
    """

    def __init__(self, keeps: float = 60.0) -> None:
        self.keeps = keeps
        self._read: tuple[float, float] | None = None  # theirs, ours
        self._asking = threading.Lock()

    def __reduce__(self) -> tuple[type[StoreClock], tuple[float]]:
        return StoreClock, (self.keeps,)

    def read(self, ask: Callable[[], float]) -> float:
        """Returns their time, never ahead of it; `ask` is called where the last answer is
        too old.
        """
        with self._asking:
            if self._read is None or passed() - self._read[1] > self.keeps:
                remote = ask()
                self._read = remote, passed()  # behind the answer: never ahead of them
            return self._read[0] + passed() - self._read[1]


def passed() -> float:
    """Returns seconds of a clock that nobody sets, which goes on while the machine sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def check_name(name: str) -> str:
    """Returns a name as it is, if it is one.

    Raises:
        ObjectError: it is empty, absolute, not Unicode, or has empty parts, `.`, `..` or a NUL.
    """
    if not is_unicode(name):
        raise ObjectError(f"object name {name!r} is not UTF-8; rename it")
    parts = name.split("/")
    if "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise ObjectError(f"object name {name!r} is no path below a store; write it as folder/name")
    return name


def is_unicode(text: str) -> bool:
    """Returns whether a text can be encoded: names of files may hold any bytes, which Python reads
    as lone surrogates.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def joined(data: Data) -> bytes:
    """Returns pieces as one."""
    return data if isinstance(data, bytes) else b"".join(data)
