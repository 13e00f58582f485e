"""Parses documents into a folder of results, page by page; a run can be interrupted and resumed."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...documents import Document
from ...documents.drafters import PageDrafter
from ...errors import SoonerError
from ...storage import StorageError
from .delivery import Line
from .output import DocumentWork, ParseOutput
from .result import FAILED, Counts
from .worker import PageWorker, in_thread

if TYPE_CHECKING:
    from .concurrent import ConcurrentParser
    from .parser import PageParser
    from .unverified import DraftParser

OnPage = Callable[[Line, Counts], None]
"""Called with a page's line in the manifest and the counts, after its files are on disk."""


def shard_of(documents: Sequence[Document], text: str) -> list[Document]:
    """Returns a part of documents, such as `2/8`, by a hash of their places: the same on every
    machine. A document at two places may be in two shards; it is parsed by whoever comes first.

    Raises:
        SoonerError: another form, or no such shard.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise SoonerError(f"shard is '{text}'; write it as 1/8 to 8/8")

    def number(document: Document) -> int:
        name = document.place.as_posix().encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.sha256(name).digest()[:8], "big") % int(match[2]) + 1

    return [document for document in documents if number(document) == int(match[1])]


@dataclass(kw_only=True)
class DocumentJob:
    """What a run over documents is, whoever parses their pages.

    Each page becomes an object of its own (`records`), from which files are derived, so any number
    of runs may write to one folder at once, or be killed, and the result is the same.

    Attributes:
        documents: what, from `sooner.documents.find_documents`.
        output: where to, of which settings, and which pages.
        shard: which part of the documents, see `shard_of`; `None` for all of them.
        stop_on_error: end at the first page that fails.
        on_page: called for each page.
        counts: pages done so far.

    Raises:
        StorageError: the folder can't be written, or holds a document where its pages would be.
    """

    documents: Sequence[Document]
    output: ParseOutput
    shard: str | None = None
    stop_on_error: bool = False
    on_page: OnPage | None = None
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self.delivery = self.output.delivery
        self.store = self.delivery.store
        self.store.check()
        for document in self.documents[:1]:  # as of all others, most likely
            place = self.store.local_path(document.place.as_posix())
            if document.url is not None or place is None or not place.is_file():
                continue
            if place.samefile(document.path):
                self.delivery.check(document)
        if self.shard is not None:
            self.documents = shard_of(self.documents, self.shard)
        self.counts.documents = len(self.documents)
        self._since, self._longest, self._is_stopped = time.perf_counter(), 0, False

    def _open(self, of: int, left: int, before: int, aside: int, failure: Line | None) -> None:
        """Count a document that was opened: its pages, and how many of them are to be done."""
        counts = self.counts
        self._longest = max(self._longest, of)
        counts.opened += 1
        counts.total += left
        counts.before += before
        counts.aside += aside
        self._count_failure(failure)

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

    def _count_failure(self, line: Line | None) -> None:
        """Count a document that failed as a whole as a page."""
        if line is not None:
            self.counts.total += 1
            self._count(line)

    def _check_pages(self) -> None:
        """Refuse pages that no document has; documents of other shards may be longer.

        Raises:
            SoonerError: names them.
        """
        longest = self._longest  # 0 if none was opened
        missing = self.output.intake.pages.missing(longest) if longest else ""
        if missing and self.shard is None:
            raise SoonerError(
                f"no document has page {missing}: the longest has {longest}; give other --pages"
            )


@dataclass(kw_only=True)
class ParseJob(DocumentJob):
    """Parses documents in this process.

    Documents are opened and hashed when their turn comes, so that a run over a hundred thousand of
    them begins with its first page, and nothing of them is kept.

    Attributes:
        drafter: `GuardedDrafter`; `None` decodes plainly.
        workers: pages that are read and drafted ahead.
    """

    drafter: PageDrafter | None = None
    workers: int = 1

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
            self.output.intake, timed, self.drafter, workers=self.workers, output=self.output
        )
        try:
            # The `run` of a runner would not end at once by Ctrl-C.
            with closing(worker), asyncio.Runner() as runner:
                runner.get_loop().run_until_complete(self._run(worker))
        except BaseException:
            with suppress(StorageError):  # which would hide what happened
                self.delivery.rebuild_manifest()
            raise
        self.delivery.rebuild_manifest()
        with suppress(StorageError):  # nobody reads what killed writers left
            self.store.sweep()
        self._check_pages()
        return self.counts

    async def _run(self, worker: PageWorker) -> None:
        """Begin pages as they come, as many as the worker has room for."""
        loading = asyncio.ensure_future(worker.loaded.wait())  # behind which there may be more room
        running: set[asyncio.Future[Any]] = {loading}
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)  # of pages that end with the run
        async with aclosing(self._pages(worker)) as pages:
            async for work, number in pages:
                running.add(asyncio.ensure_future(self._page(worker, work, number)))
                while len(running - {loading}) >= worker.capacity:
                    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for page in done:
                        page.result()  # raises what the page raised
        for rest in asyncio.as_completed(running - {loading}):
            await rest

    async def _pages(self, worker: PageWorker) -> AsyncGenerator[tuple[DocumentWork, int], None]:
        """Yields pages to be done, each document planned when the one before it is read."""
        for document in self.documents:
            work = await in_thread(worker.reader.planned, self.output, document)
            self._open(work.of, len(work.left), work.done, work.aside, work.failure)
            for page in work.left:
                if not self.output.fresh and await worker.store(
                    self.delivery.is_done, work.task(page)
                ):
                    self.counts.total -= 1  # by another run, or at another place
                    self.counts.before += 1
                    await self._ended(worker, work)
                else:
                    yield work, page

    async def _page(self, worker: PageWorker, work: DocumentWork, number: int) -> None:
        """Take a page through; with a document's last page its files are written."""
        line = await worker.written(work.task(number))
        work.written |= {number} if line["files"] else set()
        try:
            if not self._is_stopped:  # by another page that was under way
                self._count(line)
        finally:  # what a page that stops the run has ended is in the manifest, too
            await self._ended(worker, work)

    async def _ended(self, worker: PageWorker, work: DocumentWork) -> None:
        """Write a document's files behind its last page."""
        work.waiting -= 1
        if not work.waiting:
            await worker.store(self.output.finish, work)
            self._count_failure(work.failure)
