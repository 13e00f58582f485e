"""Stores whose file systems need more than fsspec's common calls: memory, and S3."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from .store import (
    Data,
    MissingObjectError,
    ObjectError,
    ObjectInfo,
    Store,
    joined,
    written_at,
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
        whole = joined(data)
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
