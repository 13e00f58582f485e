"""Stores behind fsspec: any of its file systems, memory, and S3 with its conditional writes."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
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
)

TIMES = ("LastModified", "last_modified", "mtime", "modified", "updated", "created")
"""What file systems call the time at which an object was written."""

S3_NAME_BYTES = 1024
"""The longest key of S3, its prefix included."""

REFUSED = ("412", "PreconditionFailed")
CONFLICTING = ("409", "ConditionalRequestConflict")
UNABLE = ("501", "NotImplemented")
"""S3's answers to a conditional write: there is one; another is under way; it knows none."""

CONFLICTS = 5
"""Times that a conditional write is tried while others are under way."""


class RemoteStore(Store):
    """Objects of any file system of fsspec, whose single writes are whole or not there.

    It looks before it creates, so two creators at once may both be told that they did.

    Args:
        root: the URL.
        system: an fsspec file system, without a cache of listings.
        path: of the root in it.
    """

    def __init__(self, root: str, system: Any, path: str) -> None:
        super().__init__()
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

    def create(self, name: str, data: Data) -> bool:
        if self.exists(name):
            return False
        self.write(name, data)
        return True

    def exists(self, name: str) -> bool:
        with self._asking(name, "looked for"):
            return bool(self.system.isfile(self._at(name)))

    def remove(self, name: str) -> None:
        with suppress(MissingObjectError), self._asking(name, "removed"):
            self.system.rm_file(self._at(name))

    def names(self, prefix: str = "") -> Iterator[ObjectInfo]:
        above, slash, _ = prefix.rpartition("/")
        folders = [above + slash]
        while folders:
            below = folders.pop()
            entries = []
            with suppress(MissingObjectError), self._asking(below, "listed"):
                place = f"{self.path}/{below}".rstrip("/")
                entries = self.system.ls(place, detail=True)
            for entry in entries:
                name = below + entry["name"].rstrip("/").rpartition("/")[2]
                if entry["type"] == "directory":
                    inside = f"{name}/"
                    if inside.startswith(prefix) or prefix.startswith(inside):
                        folders.append(inside)
                elif name.startswith(prefix):
                    yield ObjectInfo(name, entry["size"] or 0, _seconds(entry))

    def _at(self, name: str) -> str:
        return f"{self.path}/{check_name(name)}"

    def _server_time(self) -> float:
        """Returns the time of an object that was just written."""
        name = f".sooner/clock/{uuid.uuid4().hex}"
        self.write(name, b"clock")
        try:
            with self._asking(name, "looked for"):
                return _seconds(self.system.info(self._at(name)))
        finally:
            self.remove(name)

    def _may_refuse(self) -> bool:
        return False

    @contextmanager
    def _asking(self, name: str, done: str) -> Iterator[None]:
        """What goes wrong inside becomes one line that names the object."""
        try:
            yield
        except (StorageError, AssertionError):
            raise
        except (FileNotFoundError, NotADirectoryError) as error:
            if done == "written":  # such as a bucket that is not there
                raise self._failed(name, done, error) from error
            raise MissingObjectError(f"object '{self.url(name)}' is not there") from None
        except Exception as error:  # clients of stores have exceptions of their own
            raise self._failed(name, done, error) from error

    def _failed(self, name: str, done: str, error: Exception) -> StorageError:
        message = getattr(error, "strerror", None) or str(error) or type(error).__name__
        reason = " ".join(f"{message}".split())[:300].rstrip(".")
        return StorageError(
            f"object '{self.url(name)}' can't be {done}: {reason}; what is finished is kept, the "
            "same command goes on from there"
        )


_MEMORY = threading.RLock()


class MemoryStore(RemoteStore):
    """Objects of this process, for tests: `memory://name`."""

    tick = 0.01

    def read(self, name: str) -> bytes:
        with _MEMORY:  # its readers share one position
            return super().read(name)

    def write(self, name: str, data: Data) -> None:
        whole = joined(data)
        with _MEMORY:
            super().write(name, whole)

    def create(self, name: str, data: Data) -> bool:
        whole = joined(data)
        with _MEMORY:
            return super().create(name, whole)

    def _may_refuse(self) -> bool:
        return True


class S3Store(RemoteStore):
    """Objects of S3, or of what speaks its API.

    `create` is a PUT with `If-None-Match: *`. Its answer may be lost and the request made again,
    which then finds the object of the first: each call leaves its mark in the object's metadata,
    and knows it again. Nothing is renamed or copied.
    """

    tick = 1.0  # times are whole seconds

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
        self._check_length(name)
        super().write(name, data)

    def create(self, name: str, data: Data) -> bool:
        self._check_length(name)
        if self._refuses is False:
            return super().create(name, data)
        bucket, key, _ = self.system.split_path(self._at(name))
        mark, whole = uuid.uuid4().hex, joined(data)
        marked = {"IfNoneMatch": "*", "Metadata": {"writer": mark}}
        for number in range(CONFLICTS):
            with self._asking(name, "written"):
                try:
                    self.system.call_s3("put_object", Bucket=bucket, Key=key, Body=whole, **marked)
                    return True
                except OSError as error:
                    code = _code(error)
                    if code in REFUSED:
                        return self._mark(bucket, key) == mark
                    if code in UNABLE:
                        self._refuses = False
                        return super().create(name, whole)
                    if code not in CONFLICTING or number == CONFLICTS - 1:
                        raise
            time.sleep(random.uniform(0.02, 0.1) * 2**number)
        raise AssertionError("the last try returns or raises")

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

    def _mark(self, bucket: str, key: str) -> str | None:
        """Returns the mark of the call that made an object; `None` if it has none, or is gone."""
        with suppress(FileNotFoundError):
            head = self.system.call_s3("head_object", Bucket=bucket, Key=key)
            return head.get("Metadata", {}).get("writer")
        return None

    def _server_time(self) -> float:
        """Returns the time that the store puts into its answers."""
        bucket, key, _ = self.system.split_path(f"{self.path}/.sooner/")
        with self._asking(".sooner/", "listed"):
            page = self.system.call_s3("list_objects_v2", Bucket=bucket, Prefix=key, MaxKeys=1)
        date = page.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        return super()._server_time() if date is None else parsedate_to_datetime(date).timestamp()

    def _may_refuse(self) -> bool:
        return True

    def _check_length(self, name: str) -> None:
        _, key, _ = self.system.split_path(self._at(name))
        if len(key.encode()) > S3_NAME_BYTES:
            raise ObjectError(
                f"object name '{key[:80]}…' has {len(key.encode())} bytes; S3 takes up to "
                f"{S3_NAME_BYTES}, a shorter folder helps"
            )


def _code(error: BaseException) -> str:
    """Returns s3's own name for what went wrong."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))


def _seconds(entry: dict[str, Any]) -> float:
    """When an object was written, by whatever name and in whatever form a system tells it."""
    value = next((entry[name] for name in TIMES if entry.get(name) is not None), 0.0)
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return value.timestamp() if isinstance(value, datetime) else float(value)
