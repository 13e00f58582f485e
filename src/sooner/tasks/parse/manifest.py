"""What a folder of results holds: one JSON line a page, safe against a crash at any moment."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from .output import unwritable, write_whole
from .result import DRAFT, FAILED

NAME = "manifest.jsonl"


class Manifest:
    """`manifest.jsonl` of an output folder.

    A line is flushed and synced before `add` returns; one that a crash cut off is ignored when
    reading. A page that was done again has two lines until `tidy`; the later one counts. Threads of
    one process may share it; another process must not write meanwhile (`FolderLock`).

    Args:
        folder: of the results.

    Raises:
        OutputError: the file can't be written.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._records: dict[str, dict[int, dict[str, Any]]] = {}  # document -> page -> record
        self._changing = threading.RLock()
        touch(folder)
        try:
            lines = self.path.read_bytes().split(b"\n")
        except OSError as error:
            raise unwritable(self.path, error) from error
        for line in lines:
            if (record := _parse(line)) is not None:
                self._keep(record)
        self._lines = len([line for line in lines if line])
        self._torn = bool(lines[-1])  # a whole file ends with a newline

    def of(self, document: Path) -> list[dict[str, Any]]:
        """Records of a document, by page."""
        with self._changing:
            pages = self._records.get(document.as_posix(), {})
            return [pages[number] for number in sorted(pages)]

    def current(
        self, document: Path, input_hash: str, settings_hash: str, or_verified: bool = False
    ) -> list[dict[str, Any]]:
        """Those of them that are of this content and these settings.

        Args:
            or_verified: those that a model verified, too, whatever its settings were.
        """
        return [
            record
            for record in self.of(document)
            if record["input_hash"] == input_hash
            and (record["settings_hash"] == settings_hash or (or_verified and is_verified(record)))
        ]

    def add(self, record: dict[str, Any]) -> None:
        """Put a page's record on disk.

        Raises:
            OutputError: it can't be; nothing is left of it.
        """
        line = json.dumps(record, ensure_ascii=False).encode() + b"\n"
        try:
            size = self.path.stat().st_size if self.path.exists() else 0
            try:
                with open(self.path, "ab") as file:
                    file.write(b"\n" + line if self._torn else line)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError:
                os.truncate(self.path, size)
                raise
        except OSError as error:
            raise unwritable(self.path, error) from error
        self._torn = False
        self._lines += 1
        self._keep(record)

    def _keep(self, record: dict[str, Any]) -> None:
        with self._changing:
            self._records.setdefault(record["document"], {})[record["page"]] = record

    def forget_stale(self, document: Path, input_hash: str) -> None:
        """Leave out what a document was before it changed, and what was wrong with it as a whole,
        which comes to light anew; `tidy` takes it away."""
        with self._changing:
            for record in self.of(document):
                if record["input_hash"] != input_hash or record["page"] == 0:
                    del self._records[record["document"]][record["page"]]

    def tidy(self) -> None:
        """Rewrite the file with one line a page, in order, if it has others."""
        pages = [one for name in sorted(self._records) for one in self.of(Path(name))]
        if self._lines == len(pages) and not self._torn:
            return
        lines = (json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in pages)
        write_whole(self.path, lines)
        self._lines, self._torn = len(pages), False


def touch(folder: Path) -> None:
    """Make sure that there is a manifest in a folder, and that it can be written.

    Raises:
        OutputError: it can't.
    """
    path = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(path, "ab"):
            pass
    except OSError as error:
        raise unwritable(path, error) from error


def is_verified(record: dict[str, Any]) -> bool:
    """Whether a model had its say about a page."""
    return record["status"] not in (DRAFT, FAILED)


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
        fits = isinstance(record["document"], str) and isinstance(record["page"], int)
        return record if fits and {"input_hash", "settings_hash", "status"} <= set(record) else None
    except (ValueError, TypeError, KeyError):
        return None
