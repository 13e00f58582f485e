"""Derives a document's files from the objects of its pages, whoever parsed them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
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
        self.records.write(record)
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
        pages = _Pages(self.records, work, versions)
        place, lines, undrawn = work.document.place, list[Line](), list[int]()
        for number in sorted(versions.keys() | failed):
            record = pages.record(number)
            if record is None:  # taken away meanwhile, to be done again
                continue
            files: list[Path] = []
            if number in versions:
                files = self.delivery.files_of(place, record.page)
                placed = replace(record, page=replace(record.page, source=work.place))
                if number not in work.written and not self.delivery.mend(place, placed):
                    undrawn.append(number)
            lines.append(line_of(work.task(number), record, files, self.delivery.choices))
        self._draw(work, undrawn, pages)
        work.written |= versions.keys()
        if versions:
            info = document_info(work.task(0), lines)
            self.delivery.write_document(place, info, lambda: iter(pages))
        self.manifest.write(DocumentEntry(work.place, work.input_hash, work.of, lines))

    def _draw(self, work: DocumentWork, numbers: list[int], pages: _Pages) -> None:
        """Draw what is not there, or of other settings: only the page itself has the pixels."""
        if not numbers:
            return
        page_range = PageRange(tuple((number, number) for number in numbers))
        with fetched(work.document) as local:
            for page in self.intake.read(local, page_range):
                if isinstance(page, Page) and (parsed := pages.page(page.number)) is not None:
                    self.delivery.draw(work.document.place, page, parsed)


class _Pages:
    """Pages of a document in order, again and again; those of a long one are read each time."""

    def __init__(
        self, records: PageRecords, work: DocumentWork, versions: Mapping[int, str]
    ) -> None:
        self.records, self.work, self.versions = records, work, versions
        self._read: dict[int, PageRecord] = {}

    def __iter__(self) -> Iterator[ParsedPage]:
        for number in sorted(self.versions):
            page = self.page(number)
            if page is not None:
                yield page

    def page(self, number: int) -> ParsedPage | None:
        record = self.record(number)
        return None if record is None else replace(record.page, source=self.work.place)

    def record(self, number: int) -> PageRecord | None:
        if number in self._read:
            return self._read[number]
        settings_hash = self.versions.get(number, self.work.settings_hash)
        record = self.records.read(self.work.input_hash, settings_hash, number)
        if record is not None and len(self._read) < IN_MEMORY:
            self._read[number] = record
        return record
