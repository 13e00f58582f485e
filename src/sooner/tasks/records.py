"""Records on disk: one JSON line a file, safe against a crash at any moment."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..errors import SoonerError

Key = tuple[str, str]


class Records:
    """A `.jsonl` file to which finished records are added.

    A line is flushed and synced before `add` returns. A line that was cut off by a crash is
    ignored when reading, and the next one still starts on a line of its own.

    Args:
        path: the file; its folder must exist.
        overwrite: redo what is done; a new record then replaces the old one of the same key.

    Raises:
        SoonerError: the file can't be written.
    """

    def __init__(self, path: Path, overwrite: bool = False) -> None:
        self.path = path
        self.overwrite = overwrite
        try:
            with open(path, "ab"):
                pass
            lines = path.read_bytes().split(b"\n")
        except OSError as error:
            raise SoonerError(
                f"output '{path}' can't be written: {error.strerror}; choose another with -o"
            ) from error
        self._torn = bool(lines[-1])  # a complete file ends with a newline
        parsed = [record for line in lines if (record := _parse(line)) is not None]
        self._done = {key: record for record in parsed if (key := _key(record)) is not None}

    def done(self, input_hash: str, settings_hash: str) -> dict[str, Any] | None:
        """The record of an earlier run with the same content and settings."""
        return None if self.overwrite else self._done.get((input_hash, settings_hash))

    def add(self, record: dict[str, Any]) -> None:
        """Put a record on disk."""
        key = _key(record)
        line = json.dumps(record, ensure_ascii=False).encode() + b"\n"
        if self.overwrite and key in self._done:
            self._replace(key, line)
        else:
            self._append(line)
        if key is not None:
            self._done[key] = record

    def _append(self, line: bytes) -> None:
        with open(self.path, "ab") as file:
            file.write(b"\n" + line if self._torn else line)
            _sync(file)
        self._torn = False

    def _replace(self, key: Key | None, line: bytes) -> None:
        """Rewrite the file beside itself and swap, so that it is whole at every moment."""
        old = self.path.read_bytes().split(b"\n")
        kept = [piece for piece in old if piece and _key(_parse(piece) or {}) != key]
        beside = self.path.with_name(self.path.name + ".part")
        with open(beside, "wb") as file:
            file.write(b"".join(piece + b"\n" for piece in kept) + line)
            _sync(file)
        os.replace(beside, self.path)
        self._torn = False


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _key(record: dict[str, Any]) -> Key | None:
    hashes = record.get("input_hash"), record.get("settings_hash")
    return hashes if all(isinstance(part, str) for part in hashes) else None  # type: ignore[return-value]
