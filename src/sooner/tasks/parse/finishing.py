"""Derives a document's files from the objects of its pages, whoever parsed them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ...documents import Page, PageRange, fetched
from ...errors import error_line
from ...storage import ObjectError, StorageError
from .delivery import Delivery, document_info, line_of
from .manifest import DocumentEntry, Line, Manifest
from .page_records import DonePages, PageRecord, PageRecords
from .plan import DocumentWork, Intake, chosen
from .result import FAILED, ParsedPage

IN_MEMORY = 64
"""Pages of a document that are read once for all of its files."""

ROUNDS = 8
"""How often a document is written anew because others finished pages of it meanwhile."""


@dataclass(frozen=True)
class Finisher:
    """Writes the files of documents whose pages are all there.

    Several may finish one document at once: their files have the same bytes. Each looks again
    when it is done, so whoever is last has seen all pages.

    Attributes:
        intake: reads pages whose pictures have to be drawn again.
        records: what is known of pages.
        manifest: gets an entry of each document.
        delivery: which files.
        drafts_only: see `plan.chosen`.
        debug: let unexpected errors through.
    """

    intake: Intake
    records: PageRecords
    manifest: Manifest
    delivery: Delivery
    drafts_only: bool = False
    debug: bool = False

    def __call__(self, work: DocumentWork) -> bool:
        """Write a document's files, if no page of it is still to come.

        Returns:
            Whether none is: what is missing is being done by somebody else.

        Raises:
            ObjectError: a file of this document can't be written, or its pages can't be put into
                one.
            StorageError: nothing more can be written, of whatever document.
        """
        try:
            return self._finished(work)
        except StorageError:
            raise
        except Exception as error:  # what a format or a picture makes of a page's content
            if self.debug:
                raise
            raise ObjectError(error_line(error)) from error

    def fail(self, work: DocumentWork, problem: str) -> Line:
        """Record that a document's files can't be written; returns its line."""
        work = DocumentWork.unwritable(work.document, work.settings_hash, problem)
        failed = ParsedPage(work.place, 0, FAILED, problem)
        record = PageRecord(failed, work.input_hash, work.settings_hash)
        self.records.keep(record)
        self(work)
        return line_of(work.task(0), record, [], self.delivery.choices)

    def _finished(self, work: DocumentWork) -> bool:
        seen: tuple[dict[int, str], set[int]] | None = None
        for _ in range(ROUNDS):
            result = self._done_pages(work)
            if result == seen:
                return True
            versions, failed = seen = result
            if not {*work.numbers} <= versions.keys() | failed and 0 not in failed:
                return False
            self._write(work, versions, failed)
        return True

    def _done_pages(self, work: DocumentWork) -> tuple[dict[int, str], set[int]]:
        """Pages to be shown, of which settings each; and those that failed."""
        done = self.records.of(work.input_hash)
        versions = chosen(done, work.settings_hash, self.drafts_only)
        return versions, done.get(work.settings_hash, DonePages()).numbers - versions.keys()

    def _write(self, work: DocumentWork, versions: Mapping[int, str], failed: set[int]) -> None:
        place, lines, undrawn = work.document.place, list[Line](), list[int]()

        @lru_cache(IN_MEMORY)
        def read(number: int) -> PageRecord | None:
            settings_hash = versions.get(number, work.settings_hash)
            record = self.records.read(work.input_hash, settings_hash, number)
            return record and replace(record, page=replace(record.page, source=work.place))

        def pages() -> Iterator[ParsedPage]:
            records = map(read, sorted(versions))
            return (record.page for record in records if record is not None)

        for number in sorted(versions.keys() | failed):
            record = read(number)
            if record is None:  # taken away meanwhile, to be done again
                continue
            files: list[Path] = []
            if number in versions:
                files = self.delivery.files_of(place, record.page)
                if number not in work.written and not self.delivery.mend(place, record):
                    undrawn.append(number)
            lines.append(line_of(work.task(number), record, files, self.delivery.choices))
        self._draw(work, undrawn, read)
        work.written |= versions.keys()
        if versions:
            info = document_info(work.task(0), lines)
            self.delivery.write_document(place, info, pages)
        self.manifest.write(DocumentEntry(work.place, work.input_hash, work.of, lines))

    def _draw(
        self, work: DocumentWork, numbers: list[int], read: Callable[[int], PageRecord | None]
    ) -> None:
        """Draw what is not there, or of other settings: only the page itself has the pixels."""
        if not numbers:
            return
        page_range = PageRange(tuple((number, number) for number in numbers))
        with fetched(work.document) as local:
            for page in self.intake.read(local, page_range):
                if isinstance(page, Page) and (record := read(page.number)) is not None:
                    self.delivery.write_page(work.document.place, page, record.page)
