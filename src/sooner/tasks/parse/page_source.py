"""Pages of documents one after the other, each document opened when its turn comes."""

from __future__ import annotations

import time
from array import array
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...documents import BrokenPage, Document, Page, fetched
from ...errors import SoonerError, error_line
from ...storage import ObjectError
from .plan import DocumentPlanner, DocumentWork
from .result import Counts
from .sharing import TICK, WAIT, Chunk, Claims, DocumentShard, chunks_of


@dataclass
class PageSource:
    """Reads what is left of documents.

    Nothing of a document is kept once the next one is opened.

    Attributes:
        documents: what.
        shard: which of them; `None` for all.
        planner: says what is left, and which files there are to be.
        claims: what other runs have in hand is left to them, until the end.
        counts: of the run; documents that are opened are added.
        debug: let unexpected errors through.
        longest: pages of the longest document that was opened.
    """

    documents: Sequence[Document]
    shard: DocumentShard | None
    planner: DocumentPlanner
    claims: Claims
    counts: Counts
    debug: bool = False

    def __post_init__(self) -> None:
        self.longest = 0
        self.numbers: Sequence[int] = range(len(self.documents))
        if self.shard is not None:
            places = (Path(document.place).as_posix() for document in self.documents)
            numbers = (number for number, place in enumerate(places) if self.shard.has(place))
            self.numbers = array("q", numbers)

    def pages(self) -> Iterator[tuple[Chunk, Page | BrokenPage | None]]:
        """Pages to be done, each document opened when the one before it is read. Those that other
        runs have in hand are looked at again in the end.

        `None` stands behind the last page of a chunk; behind the last chunk of a document whose
        files are to be written, it comes once more with a chunk of no pages.
        """
        numbers, wait = self.numbers, TICK
        while numbers:
            later = array("q")
            for number in numbers:
                if self.claims.is_over:
                    return
                if not (yield from self._pages_of(self.documents[number], numbers is self.numbers)):
                    later.append(number)
            if later:
                self.claims.wait(wait)  # until the run ends, at most
            numbers, wait = later, min(1.25 * wait, WAIT)  # so that little is waited in vain

    def _pages_of(
        self, document: Document, is_first: bool
    ) -> Generator[tuple[Chunk, Page | BrokenPage | None], None, bool]:
        """Yields pages of a document; returns whether that are all."""
        # Paths remember what was asked of them: those of a hundred thousand documents must not.
        document = replace(document, path=Path(document.path), place=Path(document.place))
        if is_first:
            self.counts.opened += 1
        try:
            with fetched(document) as local:
                return (yield from self._read(self._opened(local, is_first)))
        except ObjectError as error:
            problem = str(error)
        except SoonerError:  # which any document would meet
            raise
        except Exception as error:
            if self.debug:
                raise
            problem = error_line(error)
        work = DocumentWork.unwritable(document, self.planner.settings_hash, problem)
        yield Chunk.of_document(work), None
        return True

    def _read(
        self, work: DocumentWork
    ) -> Generator[tuple[Chunk, Page | BrokenPage | None], None, bool]:
        """Yields pages of a document that nobody else has in hand; returns whether that are all."""
        is_reported, is_all = False, True
        for number, reason in work.dying.items():
            is_reported = True
            self.claims.sent()
            message = f"{reason}; --fresh tries it again"
            broken = BrokenPage(work.document.path, number, message)
            yield Chunk.of_document(work, number), broken
        for chunk in chunks_of(work, self.claims.chunk):
            if not self.claims.take(chunk.key):
                is_all = False
                self.counts.skip(len(chunk.numbers))
                continue
            for page in self._tried(chunk):
                is_reported = True
                self.claims.sent()
                yield chunk, page
                if page.number in work.tried:
                    self.claims.alone()
            yield chunk, None
        if is_all and (is_reported or not work.is_delivered):
            yield Chunk.of_document(work), None
        return is_all

    def _tried(self, chunk: Chunk) -> Iterator[Page | BrokenPage]:
        """Yields pages of a chunk, each attempt recorded before the page is read."""
        work = chunk.work
        coming, pages = iter(chunk.numbers), self.planner.intake.read(work.document, chunk.pages)
        while True:
            number = next(coming, None)
            if number is not None:
                if number in work.tried:
                    self.claims.alone()  # what else is in flight may be what kills, or not
                self.claims.begin(work.task(number))
            began = time.perf_counter()
            page = next(pages, None)
            if page is not None:
                chunk.read[page.number] = time.perf_counter() - began
            if number is not None and (page is None or page.number != number):
                self.claims.end(work.task(number))
            if page is None:
                return
            yield page

    def _opened(self, document: Document, is_first: bool) -> DocumentWork:
        self.planner.delivery.check(document)
        work = self.planner(document, self.claims.opening)
        self.claims.look(work)
        if not work.is_delivered:
            self.planner.manifest.forget(work.place)
        self.counts.skip(-work.todo)
        self.longest = max(self.longest, work.of)
        if is_first:
            self.counts.add_pages(work.done)
            self.counts.aside += work.aside
        return work
