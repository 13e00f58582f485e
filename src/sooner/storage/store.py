"""A store: named objects below a folder or a URL, each whole or not there."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import SoonerError, reason_of

NOTHING_THERE = (FileNotFoundError, NotADirectoryError)

TIMES = ("LastModified", "last_modified", "mtime", "modified", "updated", "created")
"""What file systems call the time at which an object was written."""

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
    """Holds an object, as a listing shows it.

    Attributes:
        name: below the store.
        size: in bytes.
        modified: when it was written, in seconds of the clock of the machine that keeps it.
    """

    name: str
    size: int
    modified: float


class Store:
    """Objects by name below a folder or a URL, in a file system of fsspec; `open_store` makes one.

    A name is a path with `/`, such as `pages/12ab/000001.json`. An object appears whole or not at
    all, and of several writers the last one wins; no two of them share a temporary name, and
    nothing is renamed where renaming is a copy. A store can be pickled, and shared by threads; a
    forked process opens its own.

    Args:
        root: the folder or the URL, as it was given.
        system: an fsspec file system without a cache of listings, whose single writes are whole or
            not there.
        path: of the root in it.
    """

    def __init__(self, root: str, system: Any, path: str) -> None:
        self.root, self.system, self.path = root.rstrip("/"), system, path.rstrip("/")

    def read(self, name: str) -> bytes:
        """Returns the bytes of an object.

        Raises:
            MissingObjectError: it is not there.
            StorageError: it can't be read.
        """
        with self._asking(name, "read"):
            return bytes(self.system.cat_file(self._at(name)))

    def write(self, name: str, data: Data) -> None:
        """Put an object there, in place of the one before it.

        Raises:
            StorageError: it can't be written; the one before it stays.
        """
        whole = data if isinstance(data, bytes) else b"".join(data)
        with self._asking(name, "written"):
            self.system.pipe_file(self._at(name), whole)

    def exists(self, name: str) -> bool:
        """Returns whether an object is there.

        Raises:
            StorageError: the store can't tell.
        """
        with self._asking(name, "looked for"):
            return bool(self.system.isfile(self._at(name)))

    def remove(self, name: str) -> None:
        """Take an object away; one that is not there is none to take away.

        Raises:
            StorageError: it can't be removed.
        """
        with suppress(MissingObjectError), self._asking(name, "removed"):
            self.system.rm_file(self._at(name))

    def names(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yields objects whose names begin so, in no order, read as they are asked for.

        Raises:
            StorageError: the store can't be listed.
        """
        above, entries = prefix.rpartition("/")[0], dict[str, Any]()
        with suppress(MissingObjectError), self._asking(above, "listed"):
            entries = self.system.find(f"{self.path}/{above}".rstrip("/"), detail=True)
        for path, entry in entries.items():
            name = path[len(self.path) + 1 :]
            if name.startswith(prefix):
                yield ObjectInfo(name, entry["size"] or 0, written_at(entry))

    def url(self, name: str = "") -> str:
        """Returns where an object is, for people and for fsspec."""
        return f"{self.root}/{name}" if name else self.root

    def local_path(self, name: str = "") -> Path | None:
        """Returns the file of an object; `None` where objects are no files of this machine."""
        return None

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

    def _at(self, name: str) -> str:
        return f"{self.path}/{check_name(name)}"

    @contextmanager
    def _asking(self, name: str, done: str) -> Iterator[None]:
        """What goes wrong inside becomes one line that names the object."""
        try:
            yield
        except StorageError:
            raise
        except NOTHING_THERE as error:
            if done == "written":  # such as a bucket that is not there
                raise self._failed(name, done, error) from error
            raise MissingObjectError(f"object '{self.url(name)}' is not there") from None
        except Exception as error:  # clients of stores have exceptions of their own
            raise self._failed(name, done, error) from error

    def _failed(self, name: str, done: str, error: Exception) -> StorageError:
        return StorageError(
            f"object '{self.url(name)}' can't be {done}: {reason_of(error)}; what is finished is "
            "kept, the same command goes on from there"
        )


S3_NAME_BYTES = 1024
"""The longest key of S3, its prefix included."""

_MEMORY = threading.RLock()


class MemoryStore(Store):
    """Holds objects of this process, for tests: `memory://name`."""

    def read(self, name: str) -> bytes:
        with _MEMORY:  # its readers share one position
            return super().read(name)

    def write(self, name: str, data: Data) -> None:
        whole = data if isinstance(data, bytes) else b"".join(data)  # threads may read for it
        with _MEMORY:
            super().write(name, whole)


class S3Store(Store):
    """Holds objects of S3, or of what speaks its API. Nothing is renamed or copied."""

    def read(self, name: str) -> bytes:
        with self._asking(name, "read"):  # in one request: parts could be of two versions
            return bytes(self.system.cat_file(self._at(name), max_concurrency=1))

    def exists(self, name: str) -> bool:
        bucket, key, _ = self.system.split_path(self._at(name))
        try:
            with self._asking(name, "looked for"):
                self.system.call_s3("head_object", Bucket=bucket, Key=key)
        except MissingObjectError:
            return False
        return True

    def write(self, name: str, data: Data) -> None:
        _, key, _ = self.system.split_path(self._at(name))
        if len(key.encode()) > S3_NAME_BYTES:
            raise ObjectError(
                f"object name '{key[:80]}…' has {len(key.encode())} bytes; S3 takes up to "
                f"{S3_NAME_BYTES}, a shorter folder helps"
            )
        super().write(name, data)

    def names(self, prefix: str = "") -> Iterator[ObjectInfo]:
        bucket, key, _ = self.system.split_path(f"{self.path}/{prefix}")
        rest = len(key) - len(prefix)
        more: dict[str, str] = {}
        while True:
            with self._asking(prefix, "listed"):
                page = self.system.call_s3("list_objects_v2", Bucket=bucket, Prefix=key, **more)
            for entry in page.get("Contents", []):
                name = entry["Key"][rest:]
                if name and not name.endswith("/"):  # consoles make empty objects for folders
                    yield ObjectInfo(name, entry["Size"], written_at(entry))
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}


def written_at(entry: Mapping[str, Any]) -> float:
    """Returns when an object was written, in seconds, by whatever name and in whatever form a file
    system tells it.
    """
    value = next((entry[name] for name in TIMES if entry.get(name) is not None), 0.0)
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return value.timestamp() if isinstance(value, datetime) else float(value)


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
