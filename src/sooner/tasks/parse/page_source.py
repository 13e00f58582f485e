"""Pages of documents one after the other, each document opened when its turn comes."""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...documents import BrokenPage, Document, Page, PageRange, fetched
from ...errors import SoonerError, error_line
from ...storage import ObjectError
from .output import DocumentWork, ParseOutput
from .records import key_of
from .result import Counts
from .sharing import DocumentShard, PagesUnderWay

Event = tuple[DocumentWork, Page | BrokenPage | None]
"""A page of a document; `None` behind the last one, where files are to be written."""


@dataclass(frozen=True)
class _InTurn(PageRange):
    """Pages whose numbers are asked for one by one, each when the one before it is read."""

    parts: tuple[tuple[int, int | None], ...] = ()
    numbers: Iterator[int] = field(default_factory=lambda: iter(()))

    def select(self, pages: int) -> Iterator[int]:  # type: ignore[override]
        return self.numbers


@dataclass
class PageSource:
    """Reads what is left of documents. Nothing of one is kept once the next one is opened.

    Attributes:
        documents: what.
        shard: which of them; `None` for all.
        output: says what is left.
        under_way: pages that have not ended.
        counts: of the run; documents that are opened are added.
        longest: pages of the longest document that was opened.
    """

    documents: Sequence[Document]
    shard: DocumentShard | None
    output: ParseOutput
    under_way: PagesUnderWay
    counts: Counts
    longest: int = 0

    def __post_init__(self) -> None:
        self._began = 0.0
        self.numbers: Sequence[int] = range(len(self.documents))
        if self.shard is not None:
            places = (Path(document.place).as_posix() for document in self.documents)
            numbers = (number for number, place in enumerate(places) if self.shard.has(place))
            self.numbers = array("q", numbers)

    def pages(self) -> Iterator[Event]:
        """Pages to be done, each document opened when the one before it is read."""
        for number in self.numbers:
            if self.under_way.is_closed:
                return
            yield from self._pages_of(self.documents[number])

    def _pages_of(self, document: Document) -> Iterator[Event]:
        # Paths remember what was asked of them: those of a hundred thousand documents must not.
        document = replace(document, path=Path(document.path), place=Path(document.place))
        self.counts.opened += 1
        try:
            with fetched(document) as local:
                yield from self._read(self._planned(local))
            return
        except ObjectError as error:
            problem = str(error)
        except SoonerError:  # which any document would meet
            raise
        except Exception as error:
            if self.output.debug:
                raise
            problem = error_line(error)
        hashed = key_of("", document.place.as_posix())
        settings_hash = self.output.settings_hash
        yield DocumentWork(document, hashed, settings_hash, todo=1, problem=problem), None

    def _planned(self, document: Document) -> DocumentWork:
        work = self.output.plan(document)
        self.counts.skip(-work.todo)
        self.longest = max(self.longest, work.of)
        self.counts.add_pages(work.done)
        self.counts.aside += work.aside
        return work

    def _read(self, work: DocumentWork) -> Iterator[Event]:
        """Yields pages of a document; those that kill are told without being read."""
        for number, reason in work.dying.items():
            yield work, BrokenPage(work.document.path, number, f"{reason}; --fresh tries it again")
        if work.todo > len(work.dying):
            pages = _InTurn(numbers=self._numbers(work))
            self._began = time.perf_counter()
            for page in self.output.intake.read(work.document, pages):
                work.read[page.number] = time.perf_counter() - self._began
                yield work, page
                if page.number in work.tried:
                    self.under_way.wait()
                self._began = time.perf_counter()
        if work.todo or not work.is_delivered:
            yield work, None

    def _numbers(self, work: DocumentWork) -> Iterator[int]:
        """Yields pages that are to be read, an attempt at each recorded before."""
        for number in work.left:
            if number in work.dying:
                continue
            task = work.task(number)
            self.under_way.wait(task.key)
            if not self.output.fresh and self.output.records.is_done(task):
                self.counts.skip(1)  # by another run, or at another place
                self.counts.add_pages(1)
                continue
            if self.under_way.begin(task.key):
                work.tried.add(number)
            self._began = time.perf_counter()
            yield number
