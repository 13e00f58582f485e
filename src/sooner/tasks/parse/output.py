"""`ParseOutput`: what is left to be done of documents, and what becomes of their pages."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path

from ...documents import (
    BrokenPage,
    Document,
    Page,
    PageRange,
    Resolution,
    fetched,
    read_pages,
)  # fmt: skip
from ...documents.inputs import PICTURES
from ...documents.pages import count_frames
from ...documents.pdf import count_pdf_pages
from ...errors import SoonerError, error_line
from ...storage import Attempts, ObjectError, StorageError
from ...storage.attempts import MAX_ATTEMPTS
from ..identity import sha256
from .delivery import Delivery, document_info
from .records import (
    ASIDE,
    BROKEN,
    PARSED,
    DocumentEntry,
    Line,
    PageRecords,
    PageTask,
    document_at,
    key_of,
)
from .result import DRAFTED, FAILED, ParsedPage

IN_MEMORY = 64
"""Pages of a document that are read once for all of its files."""


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
        """Refuse pages that no document has: the longest has so many, or 0 if none was opened.

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


@dataclass
class DocumentWork:
    """Holds a document and its pages.

    Attributes:
        whole: the document, as its page 0.
        of: pages that it has.
        numbers: pages that are wanted.
        left: those of them that are to be done now; page 0 where it can't be opened.
        done: how many were done before.
        aside: how many of the others are not tried again.
        is_delivered: its files are there, and are what they should be.
        written: pages whose files are known to be there.
        waiting: how many of `left` have not ended.
    """

    whole: PageTask
    of: int = 0
    numbers: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    done: int = 0
    aside: int = 0
    is_delivered: bool = False
    written: set[int] = field(default_factory=set)
    waiting: int = 0

    def task(self, number: int) -> PageTask:
        return replace(self.whole, number=number)


@dataclass(frozen=True)
class ParseOutput:
    """Keeps the results of some settings in an output folder.

    Attributes:
        delivery: which files, and where.
        settings_hash: tells results of these settings from others'.
        intake: which pages of documents, and how they are read.
        fresh: what was done before is done again.
        is_draft: no model verifies the pages, so files that one has verified are left alone.
        attempts: processes that may die at a page before it is set aside as FAILED.
        debug: let unexpected errors through.
    """

    delivery: Delivery
    settings_hash: str
    intake: Intake = field(default_factory=Intake)
    fresh: bool = False
    is_draft: bool = False
    attempts: int = MAX_ATTEMPTS
    debug: bool = False

    @cached_property
    def records(self) -> PageRecords:
        return PageRecords(self.delivery.store)

    @cached_property
    def deaths(self) -> Attempts:
        """The attempts at pages, which stay where processes died."""
        return Attempts(self.delivery.store, self.attempts)

    def whole(self, document: Document, input_hash: str = "") -> PageTask:
        """Returns page 0 of a document, which stands for all of it."""
        place = document.place.as_posix()
        return PageTask(document.source, place, input_hash, self.settings_hash, 0)

    def plan(self, document: Document) -> DocumentWork:
        """Returns what is to be done of a document, which is hashed, and opened if it is not known.

        Raises:
            ObjectError: its files can't be written.
            StorageError: the results can't be read.
            SoonerError: a model has verified its files, and these pages are drafts.
        """
        self.delivery.check(document)
        place, hashed = document.place.as_posix(), ""
        with suppress(SoonerError):  # it can't be read
            hashed = sha256(document.path)
        whole = self.whole(document, key_of(hashed, place))
        work, entry = DocumentWork(whole), self.records.entry(place)
        if entry is not None and not self.fresh:
            if self.is_draft:
                check_unverified(entry)
            if entry.input_hash == whole.input_hash and self._holds(entry, work):
                return work
        done = {} if self.fresh else self.records.of(whole)
        if self.fresh:
            self.deaths.forget(whole.key.rpartition("/")[0], below=True)
        if done.get(0) == ASIDE:
            work.aside = 1
        else:
            if entry is not None and entry.input_hash == whole.input_hash:
                work.of = entry.of
            if not work.of and (deaths := self.deaths.count(whole.key)) < self.attempts:
                with self.deaths.trying(whole.key):
                    work.of = self.intake.count(document.path)
                if deaths:  # for another reason than this document
                    self.deaths.forget(whole.key)
            self._select(work, done)
        if not work.is_delivered:
            self.records.forget_entry(place)
        return work

    def _select(self, work: DocumentWork, done: Mapping[int, str]) -> None:
        """Say which pages are wanted, and which of these are left."""
        if work.of and done.get(0) == BROKEN:
            self.records.forget(work.whole.key, BROKEN)
        work.numbers = self.intake.pages.select(work.of)
        ends = [done.get(number) for number in work.numbers]
        work.done, work.aside = ends.count(PARSED), ends.count(ASIDE)
        # What is wrong with the document as a whole comes to light where it is read.
        left = [number for number in work.numbers if done.get(number) not in (PARSED, ASIDE)]
        work.left = left if work.of else [0]
        work.waiting = len(work.left)
        work.is_delivered = work.of > 0 and not work.numbers  # what others wanted of it stays

    def _holds(self, entry: DocumentEntry, work: DocumentWork) -> bool:
        """Returns whether an entry's files are those that this run would write; then it says the
        rest.
        """
        lines = {line["page"]: line for line in entry.lines}
        numbers = self.intake.pages.select(entry.of)
        is_shut = lines.keys() == {0}  # as a whole set aside, or it would not fit
        is_whole = numbers and 0 not in lines and lines.keys() >= {*numbers}
        failed = [line for line in entry.lines if line["status"] == FAILED]
        if (
            not (is_shut or is_whole)
            or any(line["settings_hash"] != self.settings_hash for line in entry.lines)
            or not all(line["set_aside"] for line in failed)
            or not self.delivery.has(Path(entry.place), lines)
        ):
            return False
        work.of, work.numbers, work.is_delivered = entry.of, numbers, True
        work.aside = len(failed)
        work.done = len(numbers) - work.aside * (not is_shut)
        return True

    def keep(self, task: PageTask, page: Page | None, parsed: ParsedPage) -> Line:
        """Write a page's files, then its object: a run that is killed in between does it again.

        Args:
            task: which page.
            page: its picture; `None` where no figures are wanted (`Delivery.figures`).
            parsed: what became of it.

        Returns:
            Its line in the manifest, without files where these can't be written.

        Raises:
            StorageError: nothing more can be written, of whatever page.
        """
        is_written = False
        if parsed.status != FAILED:
            began = time.perf_counter()
            try:
                self.delivery.write_page(Path(task.place), page, parsed)
                is_written = True
            except ObjectError:
                pass  # its document fails in the end
            except StorageError:
                raise
            except Exception as error:  # what a format or a picture makes of a page's content
                if self.debug:
                    raise
                parsed = replace(parsed, status=FAILED, reason=error_line(error))
            took = time.perf_counter() - began
            parsed = replace(parsed, seconds={**parsed.seconds, "write": took})
        self.records.write(task, parsed, self.fresh)
        return self.delivery.line(task, parsed, is_written)

    def finish(self, work: DocumentWork) -> bool:
        """Derive a document's files from the objects of its pages, whoever parsed them, if no page
        is still to come. Several may do so at once: the files have the same bytes.

        Returns:
            Whether none is: what is missing is being done by somebody else.

        Raises:
            ObjectError: a file of this document can't be written, or its pages can't be put into
                one.
            StorageError: nothing more can be written, of whatever document.
        """
        done = self.records.of(work.whole)
        if not {*work.numbers} <= done.keys() and 0 not in done:
            return False
        try:
            self._derive(work, done)
        except StorageError:
            raise
        except Exception as error:  # what a format or a picture makes of a page's content
            if self.debug:
                raise
            raise ObjectError(error_line(error)) from error
        return True

    def fail(self, work: DocumentWork, problem: str) -> Line:
        """Record that a document's files can't be written; returns its line.

        What it holds may be parsed at another place, so nothing is recorded with the content.
        """
        place = work.whole.place
        task = replace(work.whole, input_hash=key_of("", place))
        line = self.delivery.line(task, ParsedPage(place, 0, FAILED, problem))
        self.records.write_entry(DocumentEntry(place, task.input_hash, 0, [line]))
        return line

    def _derive(self, work: DocumentWork, done: Mapping[int, str]) -> None:
        """Write what is missing of a document's files, and its entry."""
        whole, place, lines = work.whole, Path(work.whole.place), list[Line]()
        parsed_pages = sorted(number for number, end in done.items() if end == PARSED)
        read = lru_cache(IN_MEMORY)(lambda number: self.records.read(work.task(number)))

        def pages() -> Iterator[ParsedPage]:
            return filter(None, map(read, parsed_pages))

        missing = [number for number in parsed_pages if number not in work.written]
        if self.delivery.figures and missing:  # only the document has the pixels
            with fetched(document_at(whole.path, place)) as local:
                page_range = PageRange(tuple((number, number) for number in missing))
                for page in self.intake.read(local, page_range):
                    if isinstance(page, Page) and (parsed := read(page.number)) is not None:
                        self.delivery.write_page(place, page, parsed)
        else:
            for parsed in filter(None, map(read, missing)):
                self.delivery.write_page(place, None, parsed)
        work.written |= {*parsed_pages}
        for number in sorted(done):
            if (parsed := read(number)) is not None:  # else it is to be done again
                lines.append(self.delivery.line(work.task(number), parsed))
        if parsed_pages:
            info = document_info(whole, lines)
            self.delivery.write_document(place, info, pages)
        self.records.write_entry(DocumentEntry(whole.place, whole.input_hash, work.of, lines))


def check_unverified(entry: DocumentEntry) -> None:
    """Refuse to put drafts in the place of pages that a model has verified."""
    if any(line["status"] != FAILED and line["mode"] != DRAFTED for line in entry.lines):
        raise SoonerError(
            f"a model verified '{entry.place}' in an earlier run, and drafts alone would replace "
            "its files; name the model with --model, another folder with -o, or give --fresh"
        )
