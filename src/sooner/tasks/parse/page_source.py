"""Pages of documents one after the other, each document opened when its turn comes."""

from __future__ import annotations

import time
from array import array
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...documents import BrokenPage, Document, Page, PageRange, fetched
from ...errors import SoonerError, error_line
from ...storage import ObjectError
from .plan import DocumentPlanner, DocumentWork
from .result import Counts
from .sharing import TICK, WAIT, Claims, DocumentShard


@dataclass(frozen=True)
class _InTurn(PageRange):
    """Pages whose numbers are asked for one by one, each when the one before it is read."""

    parts: tuple[tuple[int, int | None], ...] = ()
    numbers: Iterator[int] = field(default_factory=lambda: iter(()))

    def select(self, pages: int) -> Iterator[int]:  # type: ignore[override]
        return self.numbers


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
        self.longest, self._began = 0, 0.0
        self.numbers: Sequence[int] = range(len(self.documents))
        if self.shard is not None:
            places = (Path(document.place).as_posix() for document in self.documents)
            numbers = (number for number, place in enumerate(places) if self.shard.has(place))
            self.numbers = array("q", numbers)

    def pages(self) -> Iterator[tuple[DocumentWork, Page | BrokenPage | None]]:
        """Pages to be done, each document opened when the one before it is read. Those that other
        runs have in hand are looked at again in the end.

        `None` stands behind the last page of a document whose files are to be written.
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
    ) -> Generator[tuple[DocumentWork, Page | BrokenPage | None], None, bool]:
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
        yield work, None
        return True

    def _read(
        self, work: DocumentWork
    ) -> Generator[tuple[DocumentWork, Page | BrokenPage | None], None, bool]:
        """Yields pages of a document that nobody else has in hand; returns whether that are all."""
        is_reported, in_other_hands = False, list[int]()
        for number, reason in work.dying.items():
            is_reported = True
            self.claims.sent()
            message = f"{reason}; --fresh tries it again"
            yield work, BrokenPage(work.document.path, number, message)
        if work.todo > len(work.dying):
            pages = _InTurn(numbers=self._numbers(work, in_other_hands))
            self._began = time.perf_counter()
            for page in self.planner.intake.read(work.document, pages):
                work.read[page.number] = time.perf_counter() - self._began
                is_reported = True
                self.claims.sent()
                yield work, page
                if page.number in work.tried:
                    self.claims.alone()
                self._began = time.perf_counter()
        is_all = not in_other_hands
        if is_all and (is_reported or not work.is_delivered):
            yield work, None
        return is_all

    def _numbers(self, work: DocumentWork, in_other_hands: list[int]) -> Iterator[int]:
        """Yields pages that are to be read, an attempt at each recorded before."""
        planner = self.planner
        for number in work.left:
            if number in work.dying:
                continue
            task, deaths = work.task(number), self.claims.begin(work.task(number))
            if deaths is None:
                in_other_hands.append(number)
                self.counts.skip(1)
                continue
            if not planner.fresh and planner.records.is_done(task, planner.drafts_only):
                self.claims.end(task, forget=deaths > 0)  # by another run, or at another place
                self.counts.skip(1)
                self.counts.add_pages(1)
                continue
            if deaths:
                work.tried.add(number)
                self.claims.alone()  # what else is in flight may be what kills, or not
            self._began = time.perf_counter()
            yield number

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
