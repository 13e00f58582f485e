"""The runs of a study on disk, a line each, so that an interrupted study goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sooner.errors import SoonerError

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
        self.path = path
        self.records: dict[tuple[str, int, int], Record] = {}
        self.resumed = 0
        if path is None:
            return
        if path.exists():
            self._read(path, identity)
        else:
            path.write_text(json.dumps({"study": identity}) + "\n")

    def _read(self, path: Path, identity: dict[str, Any]) -> None:
        lines = path.read_text().splitlines(keepends=True)
        if not lines or json.loads(lines[0]) != json.loads(json.dumps({"study": identity})):
            raise SoonerError(
                f"'{path}' holds runs of another study; finish that one with its own options, or "
                "delete the file"
            )
        # A line without its end was being written when the study was stopped.
        whole = [line for line in lines[1:] if line.endswith("\n")]
        if len(whole) < len(lines) - 1:
            path.write_text("".join([lines[0], *whole]))
        for record in map(json.loads, whole):
            self.records[_key(record)] = record
        self.resumed = len(self.records)

    def has(self, arm: str, clip: int, repeat: int) -> bool:
        return (arm, clip, repeat) in self.records

    def add(self, record: Record) -> None:
        """Keep a finished run."""
        self.records[_key(record)] = record
        if self.path is not None:
            with open(self.path, "a") as file:
                file.write(json.dumps(record) + "\n")

    def of(self, arm: str) -> list[Record]:
        """The runs of an arm, by clip and repetition."""
        return [self.records[key] for key in sorted(self.records) if key[0] == arm]

    def close(self) -> None:
        """The result is written: the runs have served."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def book_path(json_path: Path) -> Path:
    """Where the runs of the result at `json_path` are kept meanwhile."""
    return json_path.with_name(f"{json_path.name}.runs")


def _key(record: Record) -> tuple[str, int, int]:
    return record["arm"], record["clip"], record["repeat"]
