"""Files of a run: whole or not there, whatever happens meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

from ...errors import SoonerError


class OutputError(SoonerError):
    """A file can't be written; no other page would fare better."""


def write_whole(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file beside its place and swap, so that it is whole at every moment.

    Raises:
        OutputError: it can't be written, such as on a full disk; nothing is left of it.
    """
    _whole(path, lambda file: file.writelines(pieces))


def _whole(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    # Always the same name: what a killed run left there, the next one writes over.
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        part.unlink(missing_ok=True)


def unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(
        f"output '{path}' can't be written: {error.strerror}; what is finished is kept, the same "
        "command goes on from there"
    )
