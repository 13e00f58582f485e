"""Atomic writes, and lines of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from .errors import SoonerError

PART_BEGINS, PART_ENDS = ".sooner-", ".part"
"""How names of files begin and end that are being written; see `replacing`."""


def cache_folder(name: str) -> Path:
    """Returns where files of a kind are cached: below `$XDG_CACHE_HOME/sooner`, or `~/.cache`."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "sooner" / name


@contextlib.contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """A path beside `path` to write to; on leaving, what was written replaces `path` at once.

    No other writer has its name, whose length does not grow with that of `path`; the last one
    wins. If the block raises, `path` stays as it was and nothing is left behind.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{PART_BEGINS}{uuid.uuid4().hex}{PART_ENDS}")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_text(text: str, path: Path | str) -> None:
    """Write a text whole or not at all."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def write_json(content: Any, path: Path | str) -> None:
    """Write JSON whole or not at all; an object that JSON does not know leaves no file behind."""
    write_text(json.dumps(content, indent=1) + "\n", path)


def to_line(record: dict[str, Any]) -> bytes:
    """Returns a record as a line of JSON, with its end."""
    # Lone surrogates, as of a file's name that is not UTF-8, become escapes that JSON knows.
    return json.dumps(record, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"


def read_line(line: bytes) -> dict[str, Any] | None:
    """Returns the record of a line; `None` if it holds none, as one that was cut off."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def sync(file: IO[bytes]) -> None:
    """Put what was written to a file on disk."""
    file.flush()
    os.fsync(file.fileno())


def check_writable(path: Path, option: str = "--json") -> None:
    """Refuse an output file that can't be written before minutes are spent on it.

    Raises:
        SoonerError: it is a folder, or its folder takes no files; names `option`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise SoonerError(
            f"can't write '{path}': {error.strerror}; choose another {option}"
        ) from error
    if path.is_dir():
        raise SoonerError(f"can't write '{path}': it is a folder; name a file in it")
