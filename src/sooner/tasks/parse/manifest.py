"""What an output folder tells of its documents: an entry each, and `manifest.jsonl` of them all.

Both are derived from the objects of pages. An entry is written when its document's files are: as
long as it is there, they are known to be what it says. The manifest is put together at the end of
a run; in a local folder each page is also appended to it when it is done, for who looks on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ...io import read_line, to_line
from ...storage import MissingObjectError, StorageError, Store
from ...storage.store import is_unicode
from .page_records import digest_of_place

NAME = "manifest.jsonl"
HOME = ".sooner/documents"
END = ".json"

Line = dict[str, Any]
"""What the manifest says of a page; see `delivery.line_of`."""

AT_ONCE = 16
"""Objects that are read or written at once where each takes a network's time."""

LONGEST = 255
"""Bytes of the longest name of a file or folder on common file systems."""


@dataclass(frozen=True)
class DocumentEntry:
    """A document whose files are all there.

    Attributes:
        place: where they are.
        input_hash: of the content that they are of.
        of: pages that it has.
        lines: of its pages, in order.
    """

    place: str
    input_hash: str
    of: int
    lines: list[Line]

    @classmethod
    def from_bytes(cls, data: bytes) -> DocumentEntry | None:
        record = read_line(data)
        try:
            return None if record is None else cls(**record)
        except TypeError:  # of a later version
            return None


class Manifest:
    """Holds the entries and the manifest of an output folder.

    Args:
        store: of the results.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.path = store.local_path(NAME)
        self._is_changed = False

    def entry(self, place: str) -> DocumentEntry | None:
        """Returns what is known of a document's files; `None` if they may be anything.

        Raises:
            StorageError: the store can't be read.
        """
        try:
            return DocumentEntry.from_bytes(self.store.read(_name(place)))
        except MissingObjectError:
            return None

    def lines(self, place: str) -> list[Line]:
        """Returns the manifest's lines of the pages of a document whose files are there."""
        entry = self.entry(place)
        return [] if entry is None else entry.lines

    def write(self, entry: DocumentEntry) -> None:
        self._is_changed = True
        self.store.write(_name(entry.place), to_line(asdict(entry)))

    def forget(self, place: str) -> None:
        """A document's files are about to change."""
        self._is_changed = True
        self.store.remove(_name(place))

    def append(self, line: Line) -> None:
        """Show a page to who looks on; it is kept elsewhere, so nothing is lost with it."""
        self._is_changed = True
        if self.path is None:
            return
        try:
            with open(self.path, "a+b") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(end - 1, 0))
                is_torn = file.read() not in (b"", b"\n")  # a crash cut it off
                file.write(b"\n" * is_torn + to_line(line))
        except OSError as error:
            raise StorageError(
                f"output '{self.path}' can't be written: {error.strerror}; what is finished is "
                "kept, the same command goes on from there"
            ) from error

    def rebuild(self) -> None:
        """Put the manifest together, a line a page, by document and page.

        Documents that have no entry, since they are being done, keep the last line of each page.

        Raises:
            StorageError: it can't be written.
        """
        known = {info.name[len(HOME) + 1 : -len(END)] for info in self.store.names(f"{HOME}/")}
        loose = _loose_lines(self.path, known)
        places = sorted(known.union(loose))

        def lines() -> Iterator[bytes]:
            for entry in self._mapped(lambda place: loose.get(place) or self.lines(place), places):
                yield from map(to_line, entry)

        if self._is_changed or not self._holds(lines()):
            self.store.write(NAME, lines())
        self._is_changed = False

    def _mapped(self, call: Callable[[str], list[Line]], places: list[str]) -> Iterator[list[Line]]:
        """`map`, with some calls at once where each one waits for a network."""
        if self.path is not None:
            yield from map(call, places)
            return
        with ThreadPoolExecutor(AT_ONCE) as crew:
            for start in range(0, len(places), 4 * AT_ONCE):
                yield from crew.map(call, places[start : start + 4 * AT_ONCE])

    def _holds(self, lines: Iterator[bytes]) -> bool:
        """Returns whether the manifest says just this."""
        if self.path is None:
            return True  # nobody but this method writes it
        try:
            with open(self.path, "rb") as file:
                return all(first == other for first, other in zip_longest(file, lines))
        except FileNotFoundError:
            return False


def _loose_lines(path: Path | None, known: Collection[str]) -> dict[str, list[Line]]:
    """Returns lines of a local manifest by document, of those that have no entry: the last line of
    each page, of the document's last content.
    """
    pages: dict[str, dict[int, Line]] = {}
    if path is None or not path.is_file():
        return {}
    with open(path, "rb") as file:
        for raw in file:
            line = read_line(raw)
            if line is not None and _is_page(line) and entry_key(line["document"]) not in known:
                lines = pages.setdefault(line["document"], {})
                if any(other["input_hash"] != line["input_hash"] for other in lines.values()):
                    lines.clear()
                lines[line["page"]] = line
    return {place: [lines[page] for page in sorted(lines)] for place, lines in pages.items()}


def _is_page(line: Line) -> bool:
    fits = isinstance(line.get("document"), str) and isinstance(line.get("page"), int)
    return fits and {"input_hash", "settings_hash", "status"} <= set(line)


def _name(place: str) -> str:
    return f"{HOME}/{entry_key(place)}{END}"


def entry_key(place: str) -> str:
    """Returns what an entry is called: its document's place, or a hash of one that is no name for a
    file with an ending more.
    """
    longest = LONGEST - len(END)
    if is_unicode(place) and all(len(part.encode()) <= longest for part in place.split("/")):
        return place
    return f"unnamed-{digest_of_place(place)}"
