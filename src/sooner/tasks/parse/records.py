"""What an output folder keeps: an object a page, an entry a document, and the manifest of these.

A page's object stands under its document's content and the settings, so two writers of one name
write the same page, and whoever is last changes nothing but times. Everything else (files of pages
and documents, entries, `manifest.jsonl`) is derived from these objects, by anybody, as often as
wanted. As long as a document's entry is there, its files are what the entry says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ...documents import Document
from ...io import read_line, to_line
from ...storage import MissingObjectError, ObjectError, Store, is_url
from ...storage.store import is_unicode
from .result import FAILED, ParsedPage

PAGES, DOCUMENTS = ".sooner/pages", ".sooner/documents"
NAME = "manifest.jsonl"

PARSED, ASIDE, BROKEN = ENDS = (".json", ".aside.json", ".failed.json")
"""How names of pages' objects end: of those that were parsed, that are not tried again, and that
failed. A page may have several; the first of them counts."""

END = ".json"
LONGEST = 255
"""Bytes of the longest name of a file or folder on common file systems."""

AT_ONCE = 16
"""Objects that are read or written at once where each takes a network's time."""

UNREADABLE = "unreadable-"
"""Begins what stands for the hash of a file that can't be read."""

Line = dict[str, Any]
"""What the manifest says of a page; see `Delivery.line`."""


@dataclass(frozen=True)
class PageTask:
    """A page to be parsed: all that another process needs to know of it; no pixels.

    Attributes:
        path: file or URL of its document.
        place: of the document in the results, with `/`.
        input_hash: of the document's content; see `key_of`.
        settings_hash: of how.
        number: from 1; 0 for the document as a whole, which can't be read.
    """

    path: str
    place: str
    input_hash: str
    settings_hash: str
    number: int

    @property
    def key(self) -> str:
        """Names the page in a store: the same for every place of this content."""
        return f"{self.input_hash}/{self.settings_hash}/{self.number:06d}"


def document_at(source: str, place: Path) -> Document:
    """Returns the document at a path or a URL."""
    return Document(Path(source), place, source if is_url(source) else None)


def key_of(input_hash: str, place: str) -> str:
    """Returns a document's hash; a name of its own where its file can't be read, so that it has
    none.
    """
    return input_hash or UNREADABLE + digest_of_place(place)


def digest_of_place(place: str) -> str:
    """Returns a hash of a document's place, which may be no Unicode."""
    return hashlib.sha256(place.encode(errors="surrogatepass")).hexdigest()[:32]


def public_hash(input_hash: str) -> str:
    """As it is told to people: nothing for a file that can't be read."""
    return "" if input_hash.startswith(UNREADABLE) else input_hash


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


class PageRecords:
    """Holds the objects of pages, the entries of documents and the manifest of an output folder.

    Args:
        store: of the results. What can't be read or written there raises its `StorageError`.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def write(self, task: PageTask, page: ParsedPage, is_fresh: bool = False) -> None:
        """Keep what became of a page. A failure never takes the place of what was parsed, unless
        it `is_fresh`.
        """
        end = PARSED if page.status != FAILED else ASIDE if page.set_aside else BROKEN
        data = {
            "input_hash": task.input_hash,
            "settings_hash": task.settings_hash,
            "page": replace(page, source="").to_json(),  # a document may lie at many places
        }
        name = f"{PAGES}/{task.key}{end}"
        self.store.write(name, json.dumps(data, indent=1).encode() + b"\n")
        if is_fresh:
            self.forget(task.key, *(other for other in ENDS if other != end))

    def read(self, task: PageTask) -> ParsedPage | None:
        """Returns what became of a page; `None` if nothing did.

        Raises:
            ObjectError: the store holds something else under its name.
        """
        for end in ENDS:
            name = f"{PAGES}/{task.key}{end}"
            try:
                page = json.loads(self.store.read(name))["page"]
                return replace(
                    ParsedPage.from_json(page), source=task.place, set_aside=end == ASIDE
                )
            except MissingObjectError:
                continue
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise ObjectError(
                    f"object '{self.store.url(name)}' is no record of a page; remove it, and the "
                    "page is parsed again"
                ) from error
        return None

    def is_done(self, task: PageTask) -> bool:
        """Returns whether a page was parsed by now."""
        return self.store.exists(f"{PAGES}/{task.key}{PARSED}")

    def forget(self, key: str, *ends: str) -> None:
        """Take away what became of a page, by the key of its task."""
        for end in ends or ENDS:
            self.store.remove(f"{PAGES}/{key}{end}")

    def of(self, whole: PageTask) -> dict[int, str]:
        """Returns how the names of the objects end that count, by number of the page.

        Args:
            whole: any page of the document.
        """
        done: dict[int, str] = {}
        folder = f"{PAGES}/{whole.key.rpartition('/')[0]}/"
        for info in self.store.names(folder):
            digits, dot, end = info.name.removeprefix(folder).partition(".")
            if digits.isdigit() and dot + end in ENDS:
                number = int(digits)
                done[number] = min(dot + end, done.get(number, BROKEN), key=ENDS.index)
        return done

    def entry(self, place: str) -> DocumentEntry | None:
        """Returns what is known of a document's files; `None` if they may be anything."""
        with suppress(MissingObjectError, TypeError):  # not there, or of a later version
            record = read_line(self.store.read(_entry_name(place)))
            return None if record is None else DocumentEntry(**record)
        return None

    def lines(self, place: str) -> list[Line]:
        """Returns the manifest's lines of the pages of a document whose files are there."""
        entry = self.entry(place)
        return [] if entry is None else entry.lines

    def write_entry(self, entry: DocumentEntry) -> None:
        self.store.write(_entry_name(entry.place), to_line(asdict(entry)))

    def forget_entry(self, place: str) -> None:
        """A document's files are about to change."""
        self.store.remove(_entry_name(place))

    def rebuild_manifest(self) -> None:
        """Put the manifest together from the entries, a line a page, by document and page; one
        that says just this is left alone.
        """
        path = self.store.local_path(NAME)
        if path is not None and path.is_file():
            with open(path, "rb") as file:
                if all(first == other for first, other in zip_longest(file, self._all_lines())):
                    return
        self.store.write(NAME, self._all_lines())

    def _all_lines(self) -> Iterator[bytes]:
        names = self.store.names(f"{DOCUMENTS}/")
        keys = sorted(info.name.removeprefix(f"{DOCUMENTS}/").removesuffix(END) for info in names)
        with ThreadPoolExecutor(AT_ONCE) as crew:  # each may wait for a network
            for start in range(0, len(keys), 4 * AT_ONCE):
                for lines in crew.map(self.lines, keys[start : start + 4 * AT_ONCE]):
                    yield from map(to_line, lines)


def _entry_name(place: str) -> str:
    """Returns what an entry is called: its document's place, or a hash of one that is no name for a
    file with an ending more.
    """
    longest = LONGEST - len(END)
    if is_unicode(place) and all(len(part.encode()) <= longest for part in place.split("/")):
        return f"{DOCUMENTS}/{place}{END}"
    return f"{DOCUMENTS}/unnamed-{digest_of_place(place)}{END}"
