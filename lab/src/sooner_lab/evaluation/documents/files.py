"""Reads a benchmark's own files and writes answers, with errors that name the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sooner.errors import SoonerError
from sooner.storage import open_store


def read_text(path: Path) -> str:
    """A UTF-8 text; bytes that are none become marks of replacement.

    Raises:
        SoonerError: it can't be read.
    """
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SoonerError(f"'{path}' can't be read: {error.strerror}") from None


def read_json(path: Path) -> Any:
    """A JSON file.

    Raises:
        SoonerError: it can't be read, or is no JSON.
    """
    try:
        return json.loads(read_text(path))
    except ValueError as error:
        raise SoonerError(f"'{path}' is no JSON ({error}); was it fetched as a whole?") from None


def read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Objects of a JSON-lines file, each with its place for errors.

    Raises:
        SoonerError: a line that is no JSON object.
    """
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        place = f"'{path}', line {number}"
        try:
            record = json.loads(line)
        except ValueError as error:
            raise SoonerError(f"{place}: no JSON ({error}); was it fetched as a whole?") from None
        if not isinstance(record, dict):
            raise SoonerError(f"{place}: {type(record).__name__} instead of an object")
        yield place, record


def field_of(record: Any, name: str, kind: type, place: str) -> Any:
    """A field that must be there.

    Raises:
        SoonerError: it is not, or of another type.
    """
    value = record.get(name) if isinstance(record, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
        actual = "missing" if value is None else f"{type(value).__name__}, not {kind.__name__}"
        raise SoonerError(f"{place}: '{name}' is {actual}; the layout is not the published one")
    return value


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file whole or not at all.

    Raises:
        StorageError: it can't be written, such as on a full disk; nothing is left of it.
    """
    open_store(path.parent).write(path.name, text.encode())
