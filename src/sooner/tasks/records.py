"""Records on disk: one JSON line a file, safe against a crash at any moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import SoonerError
from ..io import JsonLines, read_line, to_line

Key = tuple[str, str]


class Records:
    """A `.jsonl` file to which finished records are added.

    It is read and written as `JsonLines`.

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
            self._file = JsonLines(path)
        except OSError as error:
            raise SoonerError(
                f"output '{path}' can't be written: {error.strerror}; choose another with -o"
            ) from error
        pairs = ((_key(record), record) for record in self._file.records)
        self._done = {key: record for key, record in pairs if key is not None}

    def done(self, input_hash: str, settings_hash: str) -> dict[str, Any] | None:
        """Returns the record of an earlier run with the same content and settings."""
        return None if self.overwrite else self._done.get((input_hash, settings_hash))

    def add(self, record: dict[str, Any]) -> None:
        """Put a record on disk."""
        key = _key(record)
        if self.overwrite and key in self._done:
            lines = self.path.read_bytes().split(b"\n")
            rest = [line for line in lines if line and _key(read_line(line) or {}) != key]
            self._file.rewrite([*(line + b"\n" for line in rest), to_line(record)])
        else:
            self._file.add(record)
        if key is not None:
            self._done[key] = record


def _key(record: dict[str, Any]) -> Key | None:
    hashes = record.get("input_hash"), record.get("settings_hash")
    return hashes if all(isinstance(part, str) for part in hashes) else None  # type: ignore[return-value]
