"""One object a page: what was parsed, kept under its document's content and the settings.

An object's name says what it is of, so two writers of one name write the same page, and whoever is
last changes nothing but times. Everything else of an output folder (files of pages and documents,
the manifest) is derived from these objects, by anybody, as often as wanted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ...errors import error_line
from ...storage import MissingObjectError, ObjectError, StorageError, Store
from .result import DRAFT, FAILED, ParsedPage

HOME = ".sooner/pages"
VERIFIED, DRAFTED, ASIDE, BROKEN = ".json", ".draft.json", ".aside.json", ".failed.json"
"""How names end: of what a model verified, of drafts, of pages that are not tried again, and of
those that failed. A page may have several; the first of them counts."""

ENDS = (VERIFIED, DRAFTED, ASIDE, BROKEN)

UNREADABLE = "unreadable-"
"""Begins what stands for the hash of a file that can't be read."""


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
        return page_key(self.input_hash, self.settings_hash, self.number)


def page_key(input_hash: str, settings_hash: str, number: int) -> str:
    return f"{input_hash}/{settings_hash}/{number:06d}"


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
class PageRecord:
    """Holds what became of a page.

    Attributes:
        page: as it was parsed, or FAILED; its `source` is left out: a document may lie at many
            places.
        input_hash, settings_hash: as in `PageTask`.
        pictures: hashes of the pictures that were drawn of it, by the ends of their names.
        is_aside: it failed, and is not tried again.
    """

    page: ParsedPage
    input_hash: str
    settings_hash: str
    pictures: Mapping[str, str] = field(default_factory=dict)
    is_aside: bool = False

    def to_bytes(self) -> bytes:
        data = {
            "input_hash": self.input_hash,
            "settings_hash": self.settings_hash,
            "pictures": dict(self.pictures),
            "is_aside": self.is_aside,
            "page": replace(self.page, source="").to_json(),
        }
        return json.dumps(data, indent=1).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> PageRecord:
        """Returns the record of these bytes.

        Raises:
            ValueError, KeyError, TypeError: they are none.
        """
        record = json.loads(data)
        return cls(
            ParsedPage.from_json(record["page"]),
            str(record["input_hash"]),
            str(record["settings_hash"]),
            dict(record["pictures"]),
            bool(record["is_aside"]),
        )


@dataclass
class DonePages:
    """Pages of a document that are kept, of some settings: when each of them was written.

    Attributes:
        verified: by a model.
        drafts: what a drafter said.
        aside: pages that are not tried again.
        failed: pages that are.
    """

    verified: dict[int, float] = field(default_factory=dict)
    drafts: dict[int, float] = field(default_factory=dict)
    aside: dict[int, float] = field(default_factory=dict)
    failed: dict[int, float] = field(default_factory=dict)

    @property
    def done(self) -> set[int]:
        return self.verified.keys() | self.drafts.keys()

    @property
    def numbers(self) -> set[int]:
        return self.done | self.aside.keys() | self.failed.keys()


class PageRecords:
    """Holds the objects of pages in a store.

    Args:
        store: of the results.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def write(self, record: PageRecord) -> None:
        """Keep a page. A failure never takes the place of what was parsed.

        Raises:
            StorageError: it can't be written.
        """
        self.store.write(_name(record), record.to_bytes())

    def keep(self, record: PageRecord, is_fresh: bool = False, debug: bool = False) -> PageRecord:
        """Keep a page as `write` does, if its record can be written.

        Args:
            is_fresh: what was known before shall not hide what is known now.
            debug: let unexpected errors through.

        Returns:
            The record; or one of the same page that FAILED, which is tried again.

        Raises:
            StorageError: nothing more can be written, of whatever page.
        """
        reason = ""
        try:
            self.write(record)
            if is_fresh:
                key = page_key(record.input_hash, record.settings_hash, record.page.number)
                self.forget(key, other_ends(record))
        except ObjectError as error:
            reason = str(error)
        except StorageError:
            raise
        except Exception as error:  # such as numbers that JSON does not know
            if debug:
                raise
            reason = error_line(error)
        if not reason:
            return record
        failed = ParsedPage(record.page.source, record.page.number, FAILED, reason)
        record = replace(record, page=failed, pictures={})
        with suppress(ObjectError):
            self.write(record)
        return record

    def read(self, input_hash: str, settings_hash: str, number: int) -> PageRecord | None:
        """Returns what became of a page; `None` if nothing did.

        Raises:
            StorageError: the store can't be read, or holds something else under this name.
        """
        for end in ENDS:
            name = f"{HOME}/{page_key(input_hash, settings_hash, number)}{end}"
            try:
                data = self.store.read(name)
            except MissingObjectError:
                continue
            try:
                return PageRecord.from_bytes(data)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise ObjectError(
                    f"object '{self.store.url(name)}' is no record of a page; remove it, and the "
                    "page is parsed again"
                ) from error
        return None

    def is_done(self, task: PageTask, is_draft: bool = False) -> bool:
        """Returns whether a page was parsed by now."""
        return self.store.exists(f"{HOME}/{task.key}{DRAFTED if is_draft else VERIFIED}")

    def forget(self, key: str, ends: Collection[str] = ENDS) -> None:
        """Take away what became of a page; see `page_key`."""
        for end in ends:
            self.store.remove(f"{HOME}/{key}{end}")

    def of(self, input_hash: str) -> dict[str, DonePages]:
        """Returns what is kept of a document, by settings.

        Raises:
            StorageError: the store can't be listed.
        """
        result: dict[str, DonePages] = {}
        for info in self.store.names(f"{HOME}/{input_hash}/"):
            settings_hash, _, file = info.name[len(HOME) + len(input_hash) + 2 :].partition("/")
            digits, dot, end = file.partition(".")
            if digits.isdigit() and dot + end in ENDS:
                done = result.setdefault(settings_hash, DonePages())
                by_end = (done.verified, done.drafts, done.aside, done.failed)
                by_end[ENDS.index(dot + end)][int(digits)] = info.modified
        return result


def _name(record: PageRecord) -> str:
    status = record.page.status
    end = {FAILED: ASIDE if record.is_aside else BROKEN, DRAFT: DRAFTED}.get(status, VERIFIED)
    key = page_key(record.input_hash, record.settings_hash, record.page.number)
    return f"{HOME}/{key}{end}"


def other_ends(record: PageRecord) -> list[str]:
    """Returns ends of the names under which the same page may be kept, but for the record's own."""
    name = _name(record)
    return [end for end in ENDS if not name.endswith(f"{record.page.number:06d}{end}")]


def digest(data: bytes) -> str:
    """Returns a short hash of a picture."""
    return hashlib.sha256(data).hexdigest()[:16]
