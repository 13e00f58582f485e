"""Atomic writes of single files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ...io import write_bytes
from ...storage import StorageError

OutputError = StorageError
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
