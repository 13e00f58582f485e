"""A store in a local folder: a file an object, written beside its place and swapped."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..errors import reason_of
from ..io import PART_BEGINS, PART_ENDS, replacing, sync
from .store import (
    NOTHING_THERE,
    Data,
    MissingObjectError,
    ObjectError,
    ObjectInfo,
    StorageError,
    Store,
    check_name,
)

STATE_FOLDER = ".sooner"
"""Folder of objects that are no results."""

OF_OBJECT = {
    errno.EACCES, errno.EILSEQ, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG,
    errno.ENOTDIR, errno.EPERM,
}  # fmt: skip
"""What is wrong with one file or its folder. Anything else, such as a full disk, is with all."""


class LocalStore(Store):
    """Files below a folder, which is made by the first write.

    A file is written under a name of its own, synced, and swapped into its place. What a killed
    writer leaves is never read as an object; `sweep` takes it away.

    Args:
        folder: of the objects.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder, self.root = Path(folder), str(folder)

    def local_path(self, name: str = "") -> Path:
        return self._file(name) if name else self.folder

    def _file(self, name: str) -> Path:
        if _is_part(check_name(name).rpartition("/")[2]):
            raise StorageError(
                f"object name '{name}' is kept for files that are being written; choose another"
            )
        return self.folder / name

    def url(self, name: str = "") -> str:
        return str(self.folder / name)

    def read(self, name: str) -> bytes:
        with self._asking(name, "read"):
            return self._file(name).read_bytes()

    def write(self, name: str, data: Data) -> None:
        with self._asking(name, "written"):
            try:
                with replacing(self._file(name)) as part, open(part, "xb") as file:
                    file.writelines([data] if isinstance(data, bytes) else data)
                    sync(file)
            except FileExistsError:  # so `replacing` says that a file is where a folder would be
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None

    def exists(self, name: str) -> bool:
        with self._asking(name, "looked for"):
            return self._file(name).is_file()

    def remove(self, name: str) -> None:
        with suppress(MissingObjectError), self._asking(name, "removed"):
            self._file(name).unlink()

    def names(self, prefix: str = "") -> Iterator[ObjectInfo]:
        for name, path in self._files(prefix):
            if not _is_part(path.name):
                with suppress(FileNotFoundError):  # removed meanwhile
                    info = path.stat()
                    yield ObjectInfo(name, info.st_size, info.st_mtime)

    def sweep(self, older: float = 86400.0) -> int:
        swept, now = 0, time.time()
        for _, path in self._files(""):
            with suppress(OSError):  # another sweeper was here, or its writer is done
                if _is_part(path.name) and now - path.stat().st_mtime >= older:
                    path.unlink()
                    swept += 1
        return swept

    def _files(self, prefix: str) -> Iterator[tuple[str, Path]]:
        """Yields files whose names begin so, those that are being written included."""
        above = prefix.rpartition("/")[0]
        top = self.folder / check_name(above) if above else self.folder
        for folder, _, files in os.walk(top, onerror=self._listing_failed, followlinks=True):
            below = Path(folder).relative_to(self.folder)
            for file in files:
                name = (below / file).as_posix()
                if name.startswith(prefix):
                    yield name, Path(folder, file)

    def _listing_failed(self, error: OSError) -> None:
        """Raise what `os.walk` met, but for a folder that is not there."""
        if not isinstance(error, NOTHING_THERE):
            raise self._failed(error.filename, "listed", error) from error

    def _failed(self, name: str, done: str, error: Exception) -> StorageError:
        code = getattr(error, "errno", None)
        reason = f"object '{self.url(name)}' can't be {done}: {reason_of(error)}"
        if code == errno.ENAMETOOLONG:
            return ObjectError(f"{reason}; rename it")
        if code in OF_OBJECT:
            return ObjectError(f"{reason}; check what lies there, and who may write it")
        return super()._failed(name, done, error)


def _is_part(name: str) -> bool:
    return name.startswith(PART_BEGINS) and name.endswith(PART_ENDS)
