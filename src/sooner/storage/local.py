"""A store in a local folder: a file an object, written beside its place and swapped."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .store import (
    Data,
    MissingObjectError,
    ObjectError,
    ObjectInfo,
    StorageError,
    Store,
    check_name,
)

PART_BEGINS, PART_ENDS = ".sooner-", ".part"
"""Names of files that are being written; each writer's are its own, and none is an object."""

STATE_FOLDER = ".sooner"
"""Folder of objects that are no results; those of it that are empty are not kept."""

TRIES = 20

NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES}
"""How file systems say that they know no hard links."""

NOTHING_THERE = (FileNotFoundError, NotADirectoryError)

OF_OBJECT = {
    errno.EACCES, errno.EILSEQ, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG,
    errno.ENOTDIR, errno.EPERM,
}  # fmt: skip
"""What is wrong with one file or its folder. Anything else, such as a full disk, is with all."""


class LocalStore(Store):
    """Files below a folder, which is made by the first write.

    A file is written under a name of its own, synced, and swapped into its place. What a killed
    writer leaves is never read as an object; `sweep` takes it away. `create` links the file to its
    place, which fails if there is one; where the file system knows no links, it looks first.

    Args:
        folder: of the objects.
    """

    tick = 0.05  # times of files are those of the kernel's last tick

    def __init__(self, folder: Path | str) -> None:
        super().__init__()
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
        return str(self.local_path(name))

    def read(self, name: str) -> bytes:
        path = self._file(name)
        try:
            return path.read_bytes()
        except NOTHING_THERE:
            raise MissingObjectError(f"object '{path}' is not there") from None
        except OSError as error:
            raise _failed(path, "read", error) from error

    def write(self, name: str, data: Data) -> None:
        path = self._file(name)
        with _written(path, data) as part:
            os.replace(part, path)

    def create(self, name: str, data: Data) -> bool:
        path = self._file(name)
        with _written(path, data) as part:
            try:
                os.link(part, path)
            except FileExistsError:
                # A link over a network may be made and its answer lost.
                return part.stat().st_nlink == 2
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                if path.exists():
                    return False
                os.replace(part, path)
        return True

    def exists(self, name: str) -> bool:
        try:
            return self._file(name).is_file()
        except OSError as error:
            raise _failed(self._file(name), "looked for", error) from error

    def remove(self, name: str) -> None:
        path = self._file(name)
        try:
            with suppress(*NOTHING_THERE):
                path.unlink()
        except OSError as error:
            raise _failed(path, "removed", error) from error
        if name.startswith(STATE_FOLDER):
            self._prune(path.parent)

    def _prune(self, folder: Path) -> None:
        """Take away folders of sooner's own that are empty, as of leases and attempts."""
        state_folder = self.folder / STATE_FOLDER
        with suppress(OSError):  # not empty, or another one did it
            while folder != state_folder and state_folder in folder.parents:
                folder.rmdir()
                folder = folder.parent

    def names(self, prefix: str = "") -> Iterator[ObjectInfo]:
        for name, entry in self._files(prefix):
            if not _is_part(entry.name):
                with suppress(FileNotFoundError):  # removed meanwhile
                    info = entry.stat()
                    yield ObjectInfo(name, info.st_size, info.st_mtime)

    def sweep(self, older: float = 86400.0) -> int:
        swept, now = 0, self.now()
        for _, entry in self._files(""):
            with suppress(OSError):  # another sweeper was here, or its writer is done
                if _is_part(entry.name) and now - entry.stat().st_mtime >= older:
                    os.unlink(entry.path)
                    swept += 1
        return swept

    def _files(self, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Files whose names begin so, those that are being written included."""
        above, slash, _ = prefix.rpartition("/")
        if above:
            check_name(above)
        folders = [above + slash]
        while folders:
            below = folders.pop()
            try:
                with os.scandir(self.folder / below) as entries:
                    for entry in entries:
                        name = below + entry.name
                        if entry.is_dir():
                            inside = f"{name}/"
                            if inside.startswith(prefix) or prefix.startswith(inside):
                                folders.append(inside)
                        elif name.startswith(prefix):
                            yield name, entry
            except NOTHING_THERE:
                continue
            except OSError as error:
                raise _failed(self.folder / below, "listed", error) from error

    def _server_time(self) -> float:
        """Returns the time of a file that was just written, which is that of the machine that keeps
        it.
        """
        path = self._file(".sooner/clock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = _part_path(path)
            try:
                part.touch()
                return part.stat().st_mtime
            finally:
                part.unlink(missing_ok=True)
        except OSError as error:
            raise _failed(path, "written", error) from error

    def _may_refuse(self) -> bool:
        """Returns whether files can be linked here."""
        path = self._file(".sooner/probe/link")
        with _written(path, b"") as part:
            other = _part_path(path)
            try:
                os.link(part, other)
            except OSError as error:
                if error.errno in NO_LINKS:
                    return False
                raise
            other.unlink()
        return True


def _is_part(name: str) -> bool:
    return name.startswith(PART_BEGINS) and name.endswith(PART_ENDS)


def _part_path(path: Path) -> Path:
    """Returns a name that no other writer has, of a length that does not grow with the object's."""
    return path.with_name(f"{PART_BEGINS}{uuid.uuid4().hex}{PART_ENDS}")


@contextmanager
def _written(path: Path, data: Data) -> Iterator[Path]:
    """A synced file of these bytes beside `path`, gone when the block is left.

    Raises:
        StorageError: it can't be written, or what the block does with it fails.
    """
    part = _part_path(path)
    try:
        _make_room(part)
        try:
            with open(part, "r+b") as file:
                file.writelines([data] if isinstance(data, bytes) else data)
                file.flush()
                os.fsync(file.fileno())
            yield part
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise _failed(path, "written", error) from error


def _make_room(part: Path) -> None:
    """An empty file, and its folder, which another process may just be taking away."""
    for tries_left in reversed(range(TRIES)):
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            open(part, "xb").close()
            return
        except FileNotFoundError:
            if not tries_left:
                raise
        except FileExistsError:  # so mkdir says that a file is there, or that a folder just went
            if not tries_left:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None


def _failed(path: Path, done: str, error: OSError) -> StorageError:
    reason = f"object '{path}' can't be {done}: {error.strerror}"
    if error.errno == errno.ENAMETOOLONG:
        return ObjectError(f"{reason}; rename it")
    if error.errno in OF_OBJECT:
        return ObjectError(f"{reason}; check what lies there, and who may write it")
    return StorageError(f"{reason}; what is finished is kept, the same command goes on from there")
