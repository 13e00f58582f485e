"""Parses documents into a folder of results, page by page; a run can be interrupted and resumed."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from array import array
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...documents import Document
from ...documents.drafters import PageDrafter
from ...errors import SoonerError, error_line
from ...storage import ObjectError, StorageError
from .output import DocumentWork, ParseOutput
from .records import Line
from .result import FAILED, Counts
from .worker import PageWorker, in_thread

if TYPE_CHECKING:
    from .concurrent import ConcurrentParser
    from .parser import PageParser
    from .unverified import DraftParser

OnPage = Callable[[Line, Counts], None]
"""Called with a page's line in the manifest and the counts, after its files are on disk."""


@dataclass(frozen=True)
class DocumentShard:
    """Holds a part of all documents, by a hash of their places: the same on every machine.

    A document at two places may so be in two shards; it is parsed by whoever comes first.

    Attributes:
        number: which, from 1.
        of: how many there are.
    """

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> DocumentShard:
        """Read `2/8`.

        Raises:
            SoonerError: another form, or no such shard.
        """
        match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise SoonerError(f"shard is '{text}'; write it as 1/8 to 8/8")
        return cls(int(match[1]), int(match[2]))

    def has(self, place: str) -> bool:
        digest = hashlib.sha256(place.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") % self.of == self.number - 1


@dataclass(kw_only=True)
class DocumentJob:
    """What a run over documents is, whoever parses their pages.

    Each page becomes an object of its own (`records`), from which files are derived, so any number
    of runs may write to one folder at once, or be killed, and the result is the same.

    Attributes:
        documents: what, from `sooner.documents.find_documents`.
        output: where to, of which settings, and which pages.
        stop_on_error: end at the first page that fails.
        notes_of: notes for the pages of a document, such as that the model never saw its like.
        on_page: called for each page.
        counts: pages done so far.

    Raises:
        StorageError: the folder can't be written, or holds a document where its pages would be.
    """

    documents: Sequence[Document]
    output: ParseOutput
    stop_on_error: bool = False
    notes_of: Callable[[Path], list[str]] | None = None
    on_page: OnPage | None = None
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        delivery = self.output.delivery
        for document in self.documents[:1]:  # the others when their turn comes
            if delivery.is_in_place_of(document):  # as of all others, most likely
                delivery.check(document)
        self.store, self.records = delivery.store, self.output.records
        self.store.check()
        self.counts.documents = len(self.documents)
        self._since, self._longest, self._is_stopped = time.perf_counter(), 0, False

    def _open(self, of: int, left: int, before: int, aside: int) -> None:
        """Count a document that was opened: its pages, and how many of them are to be done."""
        counts = self.counts
        self._longest = max(self._longest, of)
        counts.opened += 1
        counts.total += left
        counts.before += before
        counts.aside += aside

    def _count(self, line: Line) -> None:
        """Count a page that is saved.

        Raises:
            SoonerError: it failed, with `stop_on_error`.
        """
        now = time.perf_counter()
        self.counts.add(line["status"], now - self._since)
        self._since = now
        if self.on_page is not None:
            self.on_page(line, self.counts)
        if self.stop_on_error and line["status"] == FAILED:
            self._is_stopped = True
            where = f"'{line['source']}'" + (f", page {line['page']}" if line["page"] else "")
            raise SoonerError(f"{where}: {line['reason']}")

    def _count_unwritable(self, line: Line) -> None:
        """Count a document whose files can't be written, as a page that failed."""
        self.counts.total += 1
        self._count(line)


@dataclass(kw_only=True)
class ParseJob(DocumentJob):
    """Parses documents in this process.

    Documents are opened and hashed when their turn comes, so that a run over a hundred thousand of
    them begins with its first page, and nothing of them is kept.

    Attributes:
        drafter: `GuardedDrafter`; `None` decodes plainly.
        workers: pages that are read and drafted ahead.
        shard: which documents; `None` for all of them.
    """

    drafter: PageDrafter | None = None
    workers: int = 1
    shard: DocumentShard | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._numbers: Sequence[int] = range(len(self.documents))
        if self.shard is not None:
            places = (Path(document.place).as_posix() for document in self.documents)
            self._numbers = array("q", (n for n, name in enumerate(places) if self.shard.has(name)))
        self.counts.documents = len(self._numbers)

    def run(self, load: Callable[[], PageParser | ConcurrentParser | DraftParser]) -> Counts:
        """Do what is left to be done.

        Args:
            load: makes the parser, when the first page needs it. A `ConcurrentParser` has as many
                pages under way as it says, and is closed in the end.

        Raises:
            StorageError: nothing more can be written; what is finished is kept.
            DeviceFaultError: the accelerator failed; what is finished is kept.
            SoonerError: the model can't be loaded; no document has a page that was asked for; or,
                with `stop_on_error`, what is wrong with a page.
        """
        self._since = time.perf_counter()

        def timed() -> Any:
            began, parser = time.perf_counter(), load()
            self._since += time.perf_counter() - began  # pages a second leave loading out
            return parser

        worker = PageWorker(
            self.output.intake, timed, self.drafter, workers=self.workers, output=self.output,
            notes_of=self.notes_of,
        )  # fmt: skip
        try:
            try:
                with asyncio.Runner() as runner:  # whose `run` would not end at once by Ctrl-C
                    runner.get_loop().run_until_complete(self._run(worker))
            finally:
                worker.close()
        except BaseException:
            with suppress(StorageError):  # which would hide what happened
                self.records.rebuild_manifest()
            raise
        self.records.rebuild_manifest()
        with suppress(StorageError):  # nobody reads what killed writers left
            self.store.sweep()
        if self.shard is None:  # others may have longer documents
            self.output.intake.check(self._longest)
        return self.counts

    async def _run(self, worker: PageWorker) -> None:
        """Begin pages as they come, as many as the worker has room for."""
        running: set[asyncio.Future[None]] = set()

        async def fewer(count: int) -> None:
            nonlocal running
            while len(running) >= count:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for page in done:
                    page.result()  # raises what the page raised

        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)  # of pages that end with the run
        async with aclosing(self._pages(worker)) as pages:
            async for work, number in pages:
                running.add(asyncio.ensure_future(self._page(worker, work, number)))
                await fewer(worker.capacity)
        await fewer(1)

    async def _pages(self, worker: PageWorker) -> AsyncGenerator[tuple[DocumentWork, int], None]:
        """Yields pages to be done, each document planned when the one before it is read."""
        for number in self._numbers:
            # Paths remember what was asked of them: those of a hundred thousand documents must not.
            document = self.documents[number]
            document = replace(document, path=Path(document.path), place=Path(document.place))
            work, problem = await in_thread(self._planned, worker, document)
            self._open(work.of, len(work.left), work.done, work.aside)
            if problem:
                self._count_unwritable(self.output.fail(work, problem))
            elif not work.left and not work.is_delivered:
                await self._ended(worker, work, pages=0)
            for page in work.left:
                if not self.output.fresh and await worker.store(
                    self.records.is_done, work.task(page)
                ):
                    self.counts.total -= 1  # by another run, or at another place
                    self.counts.before += 1
                    await self._ended(worker, work)
                else:
                    yield work, page

    def _planned(self, worker: PageWorker, document: Document) -> tuple[DocumentWork, str]:
        """Returns what is to be done of a document, and why nothing of it can be written."""
        try:
            with worker.reader.lock:
                return self.output.plan(worker.reader.document(document)), ""
        except ObjectError as error:
            problem = str(error)
        except SoonerError:  # which any document would meet
            raise
        except Exception as error:
            if self.output.debug:
                raise
            problem = error_line(error)
        return DocumentWork(self.output.whole(document)), problem

    async def _page(self, worker: PageWorker, work: DocumentWork, number: int) -> None:
        """Take a page through; with a document's last page its files are written."""
        line = await worker.written(work.task(number))
        work.written |= {number} if line["files"] else set()
        try:
            if not self._is_stopped:  # by another page that was under way
                self._count(line)
        finally:  # what a page that stops the run has ended is in the manifest, too
            await self._ended(worker, work)

    async def _ended(self, worker: PageWorker, work: DocumentWork, pages: int = 1) -> None:
        """Write a document's files behind its last page."""
        work.waiting -= pages
        if work.waiting:
            return
        try:
            await worker.store(self.output.finish, work)
        except ObjectError as error:
            self._count_unwritable(self.output.fail(work, str(error)))
