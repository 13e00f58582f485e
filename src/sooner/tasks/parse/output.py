"""`ParseOutput`: what is left to be done of documents, and what becomes of their pages."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
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
from ...documents.pages import count_pages
from ...errors import SoonerError, error_line
from ...storage import Attempts, ObjectError
from ...storage.attempts import MAX_ATTEMPTS
from ..identity import sha256
from .delivery import (
    ASIDE,
    PARSED,
    Delivery,
    DocumentEntry,
    Line,
    PageTask,
    document_at,
    document_info,
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

    def count(self, document: Document) -> int:
        """Returns pages of a document.

        Raises:
            ObjectError: it can't be opened, or has none.
        """
        count = count_pages(document.path, self.password)
        if not count:
            pages = self.read(document, PageRange())
            reasons = (page.reason for page in pages if isinstance(page, BrokenPage))
            raise ObjectError(next(reasons, "changed while it was read"))
        return count


def reason_of(error: Exception, debug: bool) -> str:
    """Returns an error of one document or page in a line.

    Raises:
        Exception: the error, if any other document would meet it, or to `debug`.
    """
    if isinstance(error, ObjectError):
        return str(error)
    if debug or isinstance(error, SoonerError):
        raise error
    return error_line(error)


@dataclass
class DocumentWork:
    """Holds a document and its pages.

    Attributes:
        whole: the document, as its page 0.
        of: pages that it has.
        numbers: pages that are wanted.
        left: those of them that are to be done now.
        done: how many were done before.
        aside: how many are not tried again.
        is_delivered: its files are there, and are what they should be.
        written: pages whose files are known to be there.
        waiting: how many of `left` have not ended.
        failure: its line in the manifest, if it can't be read or its files can't be written.
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
    failure: Line | None = None

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
    def deaths(self) -> Attempts:
        """The attempts at pages, which stay where processes died."""
        return Attempts(self.delivery.store, self.attempts)

    @property
    def set_aside(self) -> str:
        """Why what killed its processes has failed."""
        return f"{self.attempts} processes died at it; it is set aside; --fresh tries it again"

    def plan(self, document: Document) -> DocumentWork:
        """Returns what is to be done of a document, which is hashed, and opened if it is not known.
        If nothing is, its files are there, or it has a `failure`.

        Raises:
            StorageError: the results can't be read.
            SoonerError: a model has verified its files, and these pages are drafts.
        """
        place = document.place.as_posix()
        work = DocumentWork(PageTask(document.source, place, "", self.settings_hash, 0))
        try:
            self.delivery.check(document)
            self._plan(work, document)
        except Exception as error:
            self.fail(work, reason_of(error, self.debug))
        if not (work.left or work.is_delivered or work.failure):
            self.finish(work)
        return work

    def _plan(self, work: DocumentWork, document: Document) -> None:
        """Say what is to be done.

        Raises:
            ObjectError: the document can't be read.
        """
        try:
            work.whole = replace(work.whole, input_hash=sha256(document.path))
        except SoonerError as error:
            raise ObjectError(document.problem or str(error)) from error
        key, place = work.whole.key, work.whole.place
        entry = self.delivery.entry(place)
        if self.fresh:
            self.deaths.forget(key.rpartition("/")[0], below=True)
        elif entry is not None:
            verified = (line["mode"] for line in entry.lines if line["status"] != FAILED)
            if self.is_draft and any(mode != DRAFTED for mode in verified):
                raise SoonerError(
                    f"a model verified '{place}' in an earlier run, and drafts alone would replace "
                    "its files; name the model with --model, another folder with -o, or give "
                    "--fresh"
                )
            if self._holds(entry, work):
                return
        if entry is not None and entry.input_hash == work.whole.input_hash:
            work.of = entry.of
        if not work.of:
            if (deaths := self.deaths.count(key)) >= self.attempts:
                self.fail(work, self.set_aside, set_aside=True)
                return
            with self.deaths.trying(key):
                work.of = self.intake.count(document)
            if deaths:  # for another reason than this document
                self.deaths.forget(key)
        done = {} if self.fresh else self.delivery.ends(work.whole)
        work.numbers = self.intake.pages.select(work.of)
        ends = [done.get(number) for number in work.numbers]
        work.done, work.aside = ends.count(PARSED), ends.count(ASIDE)
        work.left = [number for number in work.numbers if done.get(number) not in (PARSED, ASIDE)]
        work.waiting = len(work.left)
        work.is_delivered = not work.numbers  # what others wanted of it stays
        if work.numbers:
            self.delivery.forget_entry(place)

    def _holds(self, entry: DocumentEntry, work: DocumentWork) -> bool:
        """Returns whether an entry's files are what this run would write; then it says the rest."""
        numbers = {*self.intake.pages.select(entry.of)}
        failed = [line for line in entry.lines if line["status"] == FAILED]
        if (
            entry.input_hash != work.whole.input_hash
            or not numbers <= {line["page"] for line in entry.lines}
            or any(line["settings_hash"] != self.settings_hash for line in entry.lines)
            or not all(line["set_aside"] for line in failed)
            or not self.delivery.has(entry)
        ):
            return False
        work.of, work.is_delivered, work.aside = entry.of, True, len(failed)
        work.done = len(numbers - {line["page"] for line in failed})
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
            except Exception as error:  # what a format or a picture makes of a page's content
                parsed = replace(parsed, status=FAILED, reason=reason_of(error, self.debug))
            took = time.perf_counter() - began
            parsed = replace(parsed, seconds={**parsed.seconds, "write": took})
        self.delivery.save(task, parsed, self.fresh)
        return self.delivery.line(task, parsed, is_written)

    def finish(self, work: DocumentWork) -> bool:
        """Derive a document's files from the objects of its pages, whoever parsed them, if no page
        is still to come. Several may do so at once: the files have the same bytes. If they can't be
        written, the document has a `failure`.

        Returns:
            Whether none is: what is missing is being done by somebody else.

        Raises:
            StorageError: nothing more can be written, of whatever document.
        """
        done = self.delivery.ends(work.whole)
        if not {*work.numbers} <= done.keys():
            return False
        try:
            self._derive(work, done)
        except Exception as error:  # what a format or a picture makes of a page's content
            self.fail(work, reason_of(error, self.debug))
        return True

    def fail(self, work: DocumentWork, reason: str, set_aside: bool = False) -> None:
        """Record that a document can't be read, or its files can't be written.

        What it holds may be parsed at another place, so nothing is recorded with the content.
        """
        place = work.whole.place
        page = ParsedPage(place, 0, FAILED, reason, set_aside=set_aside)
        work.failure = self.delivery.line(work.whole, page)
        self._enter(work, [work.failure], of=0)

    def _enter(self, work: DocumentWork, lines: list[Line], of: int) -> None:
        whole, choices = work.whole, self.delivery.choices
        self.delivery.write_entry(DocumentEntry(whole.place, whole.input_hash, of, choices, lines))

    def _derive(self, work: DocumentWork, done: Mapping[int, str]) -> None:
        """Write what is missing of a document's files, and its entry."""
        whole, place, lines = work.whole, Path(work.whole.place), list[Line]()
        parsed_pages = sorted(number for number, end in done.items() if end == PARSED)
        read = lru_cache(IN_MEMORY)(lambda number: self.delivery.read(work.task(number)))

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
        self._enter(work, lines, work.of)
