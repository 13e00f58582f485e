"""Stores behind fsspec: any of its file systems, memory, and S3."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from .store import (
    Data,
    MissingObjectError,
    ObjectError,
    ObjectInfo,
    StorageError,
    Store,
    check_name,
    joined,
    reason_of,
)

TIMES = ("LastModified", "last_modified", "mtime", "modified", "updated", "created")
"""What file systems call the time at which an object was written."""

S3_NAME_BYTES = 1024
"""The longest key of S3, its prefix included."""


class RemoteStore(Store):
    """Objects of any file system of fsspec, whose single writes are whole or not there.

    Args:
        root: the URL.
        system: an fsspec file system, without a cache of listings.
        path: of the root in it.
    """

    def __init__(self, root: str, system: Any, path: str) -> None:
        self.root, self.system, self.path = root.rstrip("/"), system, path.rstrip("/")

    def url(self, name: str = "") -> str:
        return f"{self.root}/{name}" if name else self.root

    def read(self, name: str) -> bytes:
        with self._asking(name, "read"):
            return bytes(self.system.cat_file(self._at(name)))

    def write(self, name: str, data: Data) -> None:
        whole = joined(data)
        with self._asking(name, "written"):
            self.system.pipe_file(self._at(name), whole)

    def exists(self, name: str) -> bool:
        with self._asking(name, "looked for"):
            return bool(self.system.isfile(self._at(name)))

    def remove(self, name: str) -> None:
        with suppress(MissingObjectError), self._asking(name, "removed"):
            self.system.rm_file(self._at(name))

    def names(self, prefix: str = "") -> Iterator[ObjectInfo]:
        above, entries = prefix.rpartition("/")[0], dict[str, Any]()
        with suppress(MissingObjectError), self._asking(above, "listed"):
            entries = self.system.find(f"{self.path}/{above}".rstrip("/"), detail=True)
        for path, entry in entries.items():
            name = path[len(self.path) + 1 :]
            if name.startswith(prefix):
                yield ObjectInfo(name, entry["size"] or 0, _seconds(entry))

    def _at(self, name: str) -> str:
        return f"{self.path}/{check_name(name)}"

    def now(self) -> float:
        """Returns the time of an object that was just written."""
        name = f".sooner/clock/{uuid.uuid4().hex}"
        self.write(name, b"clock")
        try:
            with self._asking(name, "looked for"):
                return _seconds(self.system.info(self._at(name)))
        finally:
            self.remove(name)

    @contextmanager
    def _asking(self, name: str, done: str) -> Iterator[None]:
        """What goes wrong inside becomes one line that names the object."""
        try:
            yield
        except StorageError:
            raise
        except (FileNotFoundError, NotADirectoryError) as error:
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


_MEMORY = threading.RLock()


class MemoryStore(RemoteStore):
    """Holds objects of this process, for tests: `memory://name`."""

    def read(self, name: str) -> bytes:
        with _MEMORY:  # its readers share one position
            return super().read(name)

    def write(self, name: str, data: Data) -> None:
        whole = joined(data)
        with _MEMORY:
            super().write(name, whole)


class S3Store(RemoteStore):
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
                    yield ObjectInfo(name, entry["Size"], _seconds(entry))
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}


def _seconds(entry: dict[str, Any]) -> float:
    """When an object was written, by whatever name and in whatever form a system tells it."""
    value = next((entry[name] for name in TIMES if entry.get(name) is not None), 0.0)
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return value.timestamp() if isinstance(value, datetime) else float(value)
