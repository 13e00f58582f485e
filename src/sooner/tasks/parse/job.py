"""Parses documents into a folder of results, page by page; a run can be interrupted and resumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...documents import BrokenPage, Document, Page, PageDraft
from ...documents.drafters import PageDrafter
from ...errors import SoonerError, error_line, is_device_fault
from ...storage import ObjectError, StorageError
from .comparison import compare_plain, warm_up
from .output import DocumentWork, ParseOutput
from .page_source import PageSource
from .prefetch import Drafted, PageStream
from .records import Line
from .result import FAILED, Counts, Late, ParsedPage
from .sharing import DocumentShard, PagesUnderWay

if TYPE_CHECKING:
    from .concurrent import ConcurrentParser
    from .parser import PageParser
    from .unverified import DraftParser


OnPage = Callable[[dict[str, Any], Counts], None]

"""Called with a page's line in the manifest and the counts, after its files are on disk."""


class DeviceFaultError(SoonerError):
    """The accelerator failed, so that every further page would fail in this process."""


@dataclass
class ParseJob:
    """Parses documents, one page after the other.

    Documents are opened and hashed when their turn comes, so that a run over a hundred thousand of
    them begins with its first page, and nothing of them is kept. Each page becomes an object of
    its own (`page_records`), from which files are derived, so any number of runs may write to one
    folder at once, or be killed, and the result is the same.

    Attributes:
        documents: what, from `sooner.documents.find_documents`.
        output: where to, of which settings, and which pages.
        drafter: `guarded`; `None` decodes plainly.
        workers: pages that are read and drafted ahead.
        stop_on_error: end at the first page that fails.
        compare: decode each page plainly too, and tell how much sooner its parsing was.
        notes_of: notes for the pages of a document, such as that the model never saw its like.
        on_page: called for each page.
        shard: which documents; `None` for all of them.
        counts: pages done so far.

    Raises:
        StorageError: the folder can't be written, or holds a document where its pages would be.
    """

    documents: Sequence[Document]
    output: ParseOutput
    drafter: PageDrafter | None = None
    workers: int = 1
    stop_on_error: bool = False
    compare: bool = False
    notes_of: Callable[[Path], list[str]] | None = None
    on_page: OnPage | None = None
    shard: DocumentShard | None = None
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        delivery = self.output.delivery
        for document in self.documents[:1]:  # the others when their turn comes
            if delivery.is_in_place_of(document):  # as of all others, most likely
                delivery.check(document)
        self.store = delivery.store
        self.store.check()
        self.manifest = self.output.manifest
        self.under_way = PagesUnderWay(self.output.deaths)
        self.source = PageSource(
            self.documents, self.shard, self.output, self.under_way, self.counts
        )
        self.counts.documents = len(self.source.numbers)
        self._fault: Exception | None = None
        self._since = time.perf_counter()

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
        try:
            self._run(load)
        except BaseException:
            self.under_way.close()
            with suppress(StorageError):  # which would hide what happened
                self.manifest.rebuild()
            raise
        self.under_way.close()
        self.manifest.rebuild()
        with suppress(StorageError):  # nobody reads what killed writers left
            self.store.sweep()
        if self.shard is None:  # others may have longer documents
            self.output.intake.check(self.source.longest)
        return self.counts

    def _run(self, load: Callable[[], PageParser | ConcurrentParser | DraftParser]) -> None:
        """Begin pages as they come, as many as the parser takes, and save each that has ended."""
        self._since = time.perf_counter()
        parser: _Serial | ConcurrentParser | None = None
        under_way: dict[Future[ParsedPage], Drafted[DocumentWork]] = {}
        stream = PageStream(self.source.pages(), self.drafter, max(self.workers, 1))
        with ExitStack() as stack:
            stack.callback(stream.close)
            stack.callback(lambda: [future.cancel() for future in under_way])
            is_more = True
            while is_more or under_way:
                limit = 1 if parser is None else parser.pages_in_flight
                event = stream.next(is_more and len(under_way) < limit)
                if event is None:
                    is_more = False
                elif isinstance(event, Future):
                    self._end(parser, under_way.pop(event), event)
                elif event.page is None:
                    event.tag.is_read = True
                    self._finish_if_done(event.tag)
                else:
                    if parser is None and isinstance(event.page, Page):
                        parser = self._start(load, event.page, stack)
                    event.tag.under_way += 1
                    future = self._submit(parser, event)
                    under_way[future] = event
                    future.add_done_callback(stream.notify)

    def _start(
        self,
        load: Callable[[], PageParser | ConcurrentParser | DraftParser],
        page: Page,
        stack: ExitStack,
    ) -> _Serial | ConcurrentParser:
        """Returns the parser, ready for its first page; `stack` closes it."""
        began, loaded = time.perf_counter(), load()
        parser: _Serial | ConcurrentParser
        if hasattr(loaded, "submit"):
            parser = stack.enter_context(cast("ConcurrentParser", loaded))
        else:
            parser = _Serial(cast("PageParser | DraftParser", loaded))
            if self.compare:
                warm_up(cast("PageParser", loaded), page)
        self._since += time.perf_counter() - began  # pages a second leave loading out
        return parser

    def _submit(
        self, parser: _Serial | ConcurrentParser | None, drafted: Drafted[DocumentWork]
    ) -> Future[ParsedPage]:
        drafted.began = time.perf_counter()
        page = drafted.page
        if isinstance(page, BrokenPage):
            failed = ParsedPage(drafted.tag.place, page.number, FAILED, page.reason)
            broken: Future[ParsedPage] = Future()
            broken.set_result(failed)
            return broken
        assert parser is not None
        assert page is not None
        return parser.submit(page, None if self.drafter is None else drafted.draft)

    def _end(
        self,
        parser: _Serial | ConcurrentParser | None,
        drafted: Drafted[DocumentWork],
        future: Future[ParsedPage],
    ) -> None:
        """Save a page that has ended, and count it."""
        parsed = self._parsed(parser, drafted, future)
        e2e = drafted.waited + time.perf_counter() - drafted.began
        parsed = replace(parsed, seconds={**parsed.seconds, "e2e": e2e})
        if self.compare and isinstance(parser, _Serial):
            parsed = self._compared(parser.parser, drafted.page, parsed)
        line = self._keep(drafted, parsed)
        drafted.tag.under_way -= 1
        drafted.tag.is_read |= parsed.number == 0  # a document that can't be opened has no others
        try:
            self._count(line)
        finally:  # what a page that stops the run has ended is in the manifest, too
            self._finish_if_done(drafted.tag)

    def _finish_if_done(self, work: DocumentWork) -> None:
        """Write a document's files once its pages have all ended."""
        if not work.is_done:
            return
        problem = work.problem
        if not problem:
            try:
                self.output.finish(work)
                return
            except ObjectError as error:
                problem = str(error)
        self.counts.skip(-1)
        self._count(self.output.fail(work, problem))

    def _compared(
        self, parser: PageParser | DraftParser, page: Page | BrokenPage | None, parsed: ParsedPage
    ) -> ParsedPage:
        """Returns a page with its text and seconds of plain decoding, unless it failed."""
        if parsed.status == FAILED or not isinstance(page, Page):
            return parsed
        return replace(parsed, compared=compare_plain(cast("PageParser", parser), page, parsed))

    def _parsed(
        self,
        parser: _Serial | ConcurrentParser | None,
        drafted: Drafted[DocumentWork],
        future: Future[ParsedPage],
    ) -> ParsedPage:
        """Returns a page's result; an error becomes a result with status FAILED."""
        page, work = drafted.page, drafted.tag
        if not isinstance(page, Page):
            return future.result()
        name = work.place
        try:
            parsed = future.result()
        except SoonerError as error:
            return ParsedPage(name, page.number, FAILED, str(error), size=page.size)
        except Exception as error:
            if self.output.debug:
                raise
            self._fault = error if is_device_fault(error) else None
            return ParsedPage(name, page.number, FAILED, error_line(error), size=page.size)
        draft = drafted.draft()  # known by now
        seconds = {
            "read": drafted.tag.read.get(page.number, 0.0),
            "drafter": draft.seconds if draft is not None else 0.0,
            **parsed.seconds,
        }
        seconds["wait"] = drafted.waited + seconds.get("wait", 0.0)
        notes = [] if self.notes_of is None else self.notes_of(work.document.path)
        notes = [*page.notes, *notes, *parsed.notes]
        assert parser is not None
        form = parser.ask.form
        return parsed.encodable(source=name, form=form, seconds=seconds, notes=notes)

    def _keep(self, drafted: Drafted[DocumentWork], parsed: ParsedPage) -> Line:
        """Save a page that has ended."""
        work, number = drafted.tag, parsed.number
        page = drafted.page if isinstance(drafted.page, Page) else None
        is_aside = number in work.dying
        line = self.output.keep(work.task(number), page, parsed, is_aside)
        work.written |= {number} if line["files"] else set()
        is_settled = is_aside or (number in work.tried and line["status"] != FAILED)
        self.under_way.end(work.task(number).key, forget=is_settled)
        return line

    def _count(self, line: Line) -> None:
        """Count a page that is saved.

        Raises:
            DeviceFaultError: the accelerator failed at it.
            SoonerError: it failed, with `stop_on_error`.
        """
        now = time.perf_counter()
        self.counts.add(line["status"], now - self._since)
        self._since = now
        if self.on_page is not None:
            self.on_page(line, self.counts)
        where = f"'{line['source']}'" + (f", page {line['page']}" if line["page"] else "")
        if self._fault is not None:
            raise DeviceFaultError(
                f"the device failed at {where}: {error_line(self._fault)}; what is finished is "
                "kept, the same command goes on there"
            ) from self._fault
        if self.stop_on_error and line["status"] == FAILED:
            raise SoonerError(f"{where}: {line['reason']}")


class _Serial:
    """A parser of one page at a time, behind the interface of one that takes many."""

    pages_in_flight = 1

    def __init__(self, parser: PageParser | DraftParser) -> None:
        self.parser = parser
        self.ask = parser.ask

    def submit(self, page: Page, draft: PageDraft | Late | None) -> Future[ParsedPage]:
        """Returns a page that is parsed."""
        future: Future[ParsedPage] = Future()
        try:
            future.set_result(self.parser(page, draft))
        except Exception as error:
            future.set_exception(error)
        return future
