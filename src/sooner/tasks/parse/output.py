"""Atomic writes, and a lock that lets one process at a time write to an output folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from filelock import FileLock, Timeout

from ...errors import SoonerError
from ...io import write_bytes


class OutputError(SoonerError):
    """A file can't be written, so that every further page would fail."""


def write_whole(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file beside its place and swap, so that it is whole at every moment.

    Raises:
        OutputError: it can't be written, such as on a full disk; nothing is left of it.
    """
    with writing(path):
        write_bytes(pieces, path)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What fails to be written inside is an `OutputError` that names `path`."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(
        f"output '{path}' can't be written: {error.strerror}; what is finished is kept, the same "
        "command goes on from there"
    )


NAME, HOLDER = ".sooner.lock", ".sooner.pid"


class FolderLock:
    """Holds an output folder while it is entered.

    The operating system ends the lock with its process, however that ends, so none is ever stale.
    Who holds it is told by a file beside it: the lock's own may be emptied by those who try.

    Args:
        folder: of results; it is made if it is not there.

    Raises:
        OutputError: another process holds it, with its id; or the folder can't be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.holder = folder, folder / HOLDER
        self._lock = FileLock(folder / NAME, timeout=0)

    def __enter__(self) -> FolderLock:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            self.holder.write_text(str(os.getpid()))
        except Timeout:
            raise OutputError(
                f"output '{self.folder}' is in use by {self._told()}; wait for its end, or choose "
                "another folder with -o"
            ) from None
        except OSError as error:
            self._lock.release()
            raise unwritable(self.folder, error) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):  # the lock itself says whether the folder is free
            self.holder.unlink()
        self._lock.release()

    def _told(self) -> str:
        with suppress(OSError):
            if number := self.holder.read_text().strip():
                return f"process {number}"
        return "another process"
