"""A study's finished runs as JSON lines, so that an interrupted study resumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sooner.errors import SoonerError
from sooner.io import JsonLines

from .records import Record


class Book:
    """Finished runs by arm, clip and repetition.

    Each run is appended as it ends. A book of another study (other models, clips or sizes) is not
    mixed with this one.

    Args:
        path: the file; `None` keeps runs in memory only.
        identity: what every run of the study depends on.

    Raises:
        SoonerError: the file belongs to another study.
    """

    def __init__(self, path: Path | None, identity: dict[str, Any]) -> None:
        self.records: dict[tuple[str, int, int], Record] = {}
        self._file = None if path is None else JsonLines(path)
        if self._file is not None:
            self._read(self._file, {"study": identity})
        self.resumed = len(self.records)

    def _read(self, file: JsonLines, head: dict[str, Any]) -> None:
        if not file.count:
            file.add(head)
            return
        if file.records[:1] != [json.loads(json.dumps(head))]:
            raise SoonerError(
                f"'{file.path}' holds runs of another study; finish that one with its own options, "
                "or delete the file"
            )
        for record in file.records[1:]:
            self.records[_key(record)] = record

    def has(self, arm: str, clip: int, repeat: int) -> bool:
        return (arm, clip, repeat) in self.records

    def add(self, record: Record) -> None:
        """Keep a finished run."""
        self.records[_key(record)] = record
        if self._file is not None:
            self._file.add(record)

    def of(self, arm: str) -> list[Record]:
        """The runs of an arm, by clip and repetition."""
        return [self.records[key] for key in sorted(self.records) if key[0] == arm]

    def close(self) -> None:
        """Remove the file once the result is written."""
        if self._file is not None:
            self._file.path.unlink(missing_ok=True)


def book_path(json_path: Path) -> Path:
    """Where the runs of the result at `json_path` are kept meanwhile."""
    return json_path.with_name(f"{json_path.name}.runs")


def _key(record: Record) -> tuple[str, int, int]:
    return record["arm"], record["clip"], record["repeat"]
