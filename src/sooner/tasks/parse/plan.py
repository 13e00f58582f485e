"""Which pages of which documents are still to be done, by the objects of pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...documents import BrokenPage, Document, Page, PageRange, Resolution, read_pages
from ...documents.inputs import PICTURES
from ...documents.pages import count_frames
from ...documents.pdf import count_pdf_pages
from ...errors import SoonerError
from ..identity import sha256
from .delivery import Delivery
from .manifest import DocumentEntry, Manifest
from .page_records import BROKEN, DonePages, PageRecords, PageTask, key_of, page_key
from .result import DRAFT, FAILED

Opening = Callable[[PageTask], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Intake:
    """Which pages of documents are read, and how; see `read_pages`."""

    pages: PageRange = field(default_factory=PageRange)
    resolution: Resolution = field(default_factory=Resolution)
    password: str | None = None

    def read(self, document: Document, pages: PageRange) -> Iterator[Page | BrokenPage]:
        """Yields pages of a document that is `fetched`."""
        if document.problem:
            return iter([BrokenPage(document.path, 0, document.problem)])
        return read_pages(document.path, pages, self.resolution, self.password)

    def check(self, longest: int) -> None:
        """Refuse pages that no document has.

        Args:
            longest: pages of the longest document; 0 if none could be opened.

        Raises:
            SoonerError: names them.
        """
        missing = self.pages.missing(longest) if longest else ""
        if missing:
            raise SoonerError(
                f"no document has page {missing}: the longest has {longest}; give other --pages"
            )

    def count(self, path: Path) -> int:
        """Returns pages of a document; 0 if it can't be opened."""
        if path.suffix.lower() in PICTURES:
            return count_frames(path)
        return count_pdf_pages(path, self.password)


class SetAsideError(SoonerError):
    """Processes died where a document was opened; says how many, and which."""


@dataclass
class DocumentWork:
    """Holds a document and its pages.

    Attributes:
        document: what.
        input_hash: of the file's content, or what stands for it; see `key_of`.
        settings_hash: of how.
        of: pages that it has.
        numbers: pages that are wanted.
        left: those of them that are to be done now.
        todo: pages to be done; at least 1 where what is wrong with the document is to be told.
        done: how many were done before.
        aside: how many of the others are not tried again.
        dying: pages to be set aside now, with the reason; 0 for the document as a whole.
        tried: pages at which a process died.
        problem: why nothing of it can be written.
        is_delivered: its files are there, and are what they should be.
        written: pages whose files this run wrote.
        read: seconds that reading each of its pages took, by number, so far.
        under_way: pages of it that have been read and have not ended.
        is_read: all that is to be done of it has been read.
    """

    document: Document
    input_hash: str
    settings_hash: str
    of: int = 0
    numbers: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    todo: int = 0
    done: int = 0
    aside: int = 0
    dying: dict[int, str] = field(default_factory=dict)
    tried: set[int] = field(default_factory=set)
    problem: str = ""
    is_delivered: bool = False
    written: set[int] = field(default_factory=set)
    read: dict[int, float] = field(default_factory=dict)
    under_way: int = 0
    is_read: bool = False

    @property
    def place(self) -> str:
        return self.document.place.as_posix()

    @property
    def is_done(self) -> bool:
        return self.is_read and not self.under_way

    def task(self, number: int) -> PageTask:
        return PageTask(
            self.document.source, self.place, self.input_hash, self.settings_hash, number
        )

    @classmethod
    def unwritable(cls, document: Document, settings_hash: str, problem: str) -> DocumentWork:
        """Returns a document whose files can't be written. What it holds is parsed under another
        name, so the failure is not recorded with the content but with the place.
        """
        hashed = key_of("", document.place.as_posix())
        return cls(document, hashed, settings_hash, todo=1, problem=problem)


@dataclass(frozen=True)
class DocumentPlanner:
    """Says what is left to be done of documents.

    Attributes:
        intake: which pages.
        records: what is done.
        manifest: what is known of documents' files.
        delivery: which files there should be.
        settings_hash: of how.
        fresh: do everything again.
        drafts_only: no model verifies the pages, so those that one verified are left alone.
    """

    intake: Intake
    records: PageRecords
    manifest: Manifest
    delivery: Delivery
    settings_hash: str
    fresh: bool = False
    drafts_only: bool = False

    def __call__(self, document: Document, opening: Opening = nullcontext) -> DocumentWork:
        """Returns what is to be done of a document, which is hashed, and opened if it is not known.

        Args:
            opening: entered with page 0 of it while it is opened; `SetAsideError` keeps it shut.

        Raises:
            StorageError: the results can't be read.
        """
        place, page_range = document.place.as_posix(), self.intake.pages
        hashed = key_of(_hash(document.path), place)
        work = DocumentWork(document, hashed, self.settings_hash)
        entry = self.manifest.entry(place)
        if entry is not None and entry.input_hash != hashed:
            entry = None
        if entry is not None and not self.fresh and self._holds(entry, work):
            return work
        records = self.records.of(hashed)
        current = records.get(self.settings_hash, DonePages())
        if 0 in current.aside and not self.fresh:
            work.aside = 1
            return work
        work.of = entry.of if entry is not None else 0
        try:
            with opening(work.task(0)):
                work.of = work.of or self.intake.count(document.path)
        except SetAsideError as error:
            work.dying, work.todo = {0: str(error)}, 1
            return work
        work.numbers = page_range.select(work.of)
        done = {*chosen(records, self.settings_hash, self.drafts_only)} & {*work.numbers}
        aside = (current.aside.keys() - done) & {*work.numbers}
        if self.fresh:
            aside = set()
            done = {number for number in done if self._is_verified(records, number)}
        # What is wrong with the document as a whole comes to light only where it is read.
        is_sound = work.of > 0 and 0 not in current.failed
        if 0 in current.failed:
            self.records.forget(page_key(hashed, self.settings_hash, 0), [BROKEN])
        work.done, work.aside = len(done), len(aside)
        work.left = [number for number in work.numbers if number not in done | aside]
        work.todo = len(work.left) + (not is_sound)
        work.is_delivered = is_sound and not work.numbers  # what others wanted of it stays
        return work

    def _is_verified(self, records: Mapping[str, DonePages], number: int) -> bool:
        return self.drafts_only and any(number in pages.verified for pages in records.values())

    def _holds(self, entry: DocumentEntry, work: DocumentWork) -> bool:
        """Returns whether an entry's files are those that this run would write; then it says the
        rest.
        """
        page_range, lines = self.intake.pages, {line["page"]: line for line in entry.lines}
        numbers = page_range.select(entry.of)
        is_shut = lines.keys() == {0}  # as a whole set aside, or it would not fit
        is_whole = numbers and lines.keys() >= {*numbers}
        if not is_shut and (not is_whole or 0 in lines):
            return False
        if not all(map(self._fits, lines.values())):
            return False
        if not self.delivery.has(work.document.place, lines):
            return False
        work.of, work.numbers, work.is_delivered = entry.of, numbers, True
        work.aside = sum(line["status"] == FAILED for line in entry.lines)
        work.done = len(numbers) - work.aside * (not is_shut)
        return True

    def _fits(self, line: dict) -> bool:
        if line["status"] == FAILED:
            return line["settings_hash"] == self.settings_hash and line["set_aside"]
        is_verified = self.drafts_only and line["status"] != DRAFT
        return line["settings_hash"] == self.settings_hash or is_verified


def chosen(
    records: Mapping[str, DonePages], settings_hash: str, drafts_only: bool
) -> dict[int, str]:
    """Returns pages that a document shows, and of which settings each.

    Args:
        drafts_only: what a model verified, by whatever settings, goes before a draft.
    """
    done = records.get(settings_hash, DonePages())
    result = dict.fromkeys(done.done, settings_hash)
    if not drafts_only:
        return result
    latest: dict[int, tuple[float, str]] = {}
    for other, pages in records.items():
        for number, when in pages.verified.items():
            latest[number] = max((when, other), latest.get(number, (when, other)))
    return {**result, **{number: other for number, (_, other) in latest.items()}}


def _hash(path: Path) -> str:
    try:
        return sha256(path)
    except SoonerError:
        return ""
