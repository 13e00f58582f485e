"""Atomic writes of single files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...storage import StorageError

OutputError = StorageError
"""A file can't be written, so that every further page would fail."""


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
