"""Parses documents into a folder of results, page by page; a run can be interrupted and resumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...documents import BrokenPage, Document, Page
from ...documents.drafters import PageDrafter
from ...errors import SoonerError, error_line, is_device_fault
from ...storage import ObjectError
from .as_they_end import as_they_end
from .comparison import compare_plain, warm_up
from .delivery import Delivery, line_of
from .finishing import Finisher
from .manifest import Line, Manifest
from .output import OutputError
from .page_records import PageRecord, PageRecords
from .page_source import PageSource
from .plan import DocumentPlanner, DocumentWork, Intake
from .prefetch import Drafted, ahead
from .result import FAILED, Counts, ParsedPage
from .sharing import ATTEMPTS, LEASE, Chunk, Claims, DocumentShard
from .side_by_side import OpenTags

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
        delivery: where to.
        settings_hash: tells results of these settings from others'.
        intake: which pages, how large.
        drafter: `guarded`; `None` decodes plainly.
        workers: pages that it is given ahead; 0 is none.
        fresh: do again what was done before.
        stop_on_error: end at the first page that fails.
        compare: decode each page plainly too, and tell how much sooner its parsing was.
        drafts_only: no model verifies anything, so what one verified before is kept (even by
            `fresh`), whatever its settings were.
        told_of: notes for the pages of a document, such as that the model never saw its like.
        on_page: told about each page.
        debug: let unexpected errors through.
        shard: which documents; `None` for all of them.
        lease: seconds for which other runs leave pages alone that this one has in hand; `None` for
            no leases. They save work and nothing else.
        attempts: processes that may die at a page before it is set aside as FAILED; 0 for any.
        counts: pages done so far.

    Raises:
        OutputError: the folder can't be written, or holds a document where its pages would be.
    """

    documents: Sequence[Document]
    delivery: Delivery
    settings_hash: str
    intake: Intake = field(default_factory=Intake)
    drafter: PageDrafter | None = None
    workers: int = 1
    fresh: bool = False
    stop_on_error: bool = False
    compare: bool = False
    drafts_only: bool = False
    notes_of: Callable[[Path], list[str]] | None = None
    on_page: OnPage | None = None
    debug: bool = False
    shard: DocumentShard | None = None
    lease: float | None = LEASE
    attempts: int = ATTEMPTS
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        for document in self.documents[:1]:  # the others when their turn comes
            if self.delivery.is_in_place_of(document):  # as of all others, most likely
                self.delivery.check(document)
        self.store = self.delivery.store
        self.store.check()
        self.records, self.manifest = PageRecords(self.store), Manifest(self.store)
        self.planner = DocumentPlanner(
            self.intake,
            self.records,
            self.manifest,
            self.delivery,
            self.settings_hash,
            self.fresh,
            self.drafts_only,
        )
        self.finisher = Finisher(
            self.intake,
            self.records,
            self.manifest,
            self.delivery,
            self.drafts_only,
            self.debug,
        )
        self.claims = Claims(self.store, self.lease, self.attempts, self.fresh)
        self.source = PageSource(
            self.documents,
            self.shard,
            self.planner,
            self.claims,
            self.finisher,
            self.counts,
        )
        self.counts.documents = len(self.source.numbers)
        self._fault: Exception | None = None

    def run(self, load: Callable[[], PageParser | ConcurrentParser | DraftParser]) -> Counts:
        """Do what is left to be done.

        Args:
            load: makes the parser, when the first page needs it. A `ConcurrentParser` has as many
                pages under way as it says, and is closed in the end.

        Raises:
            OutputError: nothing more can be written; what is finished is kept.
            DeviceFaultError: the accelerator failed; what is finished is kept.
            SoonerError: the model can't be loaded; no document has a page that was asked for; or,
                with `stop_on_error`, what is wrong with a page.
        """
        try:
            self._run(load)
        except BaseException:
            self.claims.close()
            with suppress(OutputError):  # which would hide what happened
                self.manifest.rebuild()
            raise
        self.claims.close()
        self.manifest.rebuild()
        with suppress(OutputError):  # nobody reads what killed writers left
            self.store.sweep()
        if self.shard is None:  # others may have longer documents
            self.intake.check(self.source.longest)
        return self.counts

    def _run(self, load: Callable[[], PageParser | ConcurrentParser | DraftParser]) -> None:
        parser: PageParser | DraftParser | None = None
        before: Chunk | None = None
        with _closing(ahead(self.source.pages(), self.drafter, self.workers)) as coming:
            for drafted in coming:
                if before is not None and drafted.tag is not before:
                    self._leave(before, drafted.tag)
                before = drafted.tag
                if self._is_done_by_now(drafted):
                    continue
                if parser is None and isinstance(drafted.page, Page):
                    loaded = load()
                    if hasattr(loaded, "submit"):
                        several = cast("ConcurrentParser", loaded)
                        self._side_by_side(several, _chained(drafted, coming))
                        return
                    parser = cast("PageParser | DraftParser", loaded)
                    self._warm_up(parser, drafted.page)
                self._do(parser, drafted)
        if before is not None:
            self._leave(before)

    def _leave(self, chunk: Chunk, then: Chunk | None = None) -> None:
        self.claims.done(chunk.key)
        if then is not None and then.work is chunk.work:
            return
        try:
            self.finisher(chunk.work)
        except ObjectError as error:
            self._fail(chunk.work.document, str(error))

    def _fail(self, document: Document, problem: str) -> None:
        """A document's pages are parsed, and its files can't be written."""
        began = time.perf_counter()
        work = DocumentWork.unwritable(document, self.settings_hash, problem)
        self.counts.skip(-work.todo)
        self.claims.sent()
        drafted = Drafted(Chunk.of_document(work), BrokenPage(document.path, 0, problem))
        try:
            self._done(drafted, self._parsed(None, drafted, _no_page), began)
        finally:
            self.finisher(work)

    def _is_done_by_now(self, drafted: Drafted[Chunk]) -> bool:
        """Returns whether a page was parsed since its document was opened: by another run, or where
        the same document lies at another place.
        """
        work, number = drafted.tag.work, drafted.page.number
        if self.fresh or isinstance(drafted.page, BrokenPage):
            return False
        if not self.records.is_done(work.task(number), self.drafts_only):
            return False
        self.claims.note_saved(work.task(number), forget=number in work.tried)
        self.counts.skip(1)
        self.counts.add_pages(1)
        return True

    def _warm_up(self, parser: PageParser | DraftParser, page: Page) -> None:
        if self.compare and not self.drafts_only:
            warm_up(cast("PageParser", parser), page)

    def _do(self, parser: PageParser | DraftParser | None, drafted: Drafted[Chunk]) -> None:
        """Parse a page, keep what came of it, and count it."""
        began = time.perf_counter()
        draft = None if self.drafter is None else drafted.draft
        parsed = self._parsed(
            parser, drafted, lambda: cast("PageParser", parser)(cast(Page, drafted.page), draft)
        )
        e2e = drafted.waited + time.perf_counter() - began
        parsed = replace(parsed, seconds={**parsed.seconds, "e2e": e2e})
        if self.compare and not self.drafts_only and isinstance(drafted.page, Page):
            parsed = self._compared(cast("PageParser", parser), drafted.page, parsed)
        self._done(drafted, parsed, began - drafted.waited)

    def _done(self, drafted: Drafted[Chunk], parsed: ParsedPage, began: float) -> None:
        """Keep what came of a page, and count it."""
        line = self._keep(drafted, parsed)
        self._count(line, time.perf_counter() - began)
        where = f"'{drafted.tag.work.document.source}'"
        where += f", page {parsed.number}" if parsed.number else ""
        if self._fault is not None:
            raise DeviceFaultError(
                f"the device failed at {where}: {error_line(self._fault)}; what is finished is "
                "kept, the same command goes on there"
            ) from self._fault
        if self.stop_on_error and line["status"] == FAILED:
            raise SoonerError(f"{where}: {line['reason']}")

    def _side_by_side(self, parser: ConcurrentParser, coming: Iterator[Drafted[Chunk]]) -> None:
        """Parse several pages at once, and keep each as it ends."""
        tags: OpenTags[Chunk] = OpenTags(self._leave_of_several)
        begun: dict[int, float] = {}

        def begin(drafted: Drafted[Chunk]) -> Future[ParsedPage] | None:
            tags.begin(drafted.tag)
            if self._is_done_by_now(drafted):
                tags.end(drafted.tag)
                return None
            begun[id(drafted)] = time.perf_counter()
            if isinstance(drafted.page, BrokenPage):
                broken: Future[ParsedPage] = Future()
                broken.set_exception(SoonerError(drafted.page.reason))
                return broken
            late = None if self.drafter is None else drafted.draft
            return parser.submit(drafted.page, late if self.workers or late is None else late())

        before = time.perf_counter()
        with parser:
            for drafted, future in as_they_end(coming, begin, parser.pages_in_flight):
                parsed = self._parsed(parser, drafted, future.result)
                e2e = drafted.waited + time.perf_counter() - begun.pop(id(drafted))
                parsed = replace(parsed, seconds={**parsed.seconds, "e2e": e2e})
                self._done(drafted, parsed, before)
                before = time.perf_counter()
                tags.end(drafted.tag)
            tags.close()

    def _leave_of_several(self, tag: Chunk, chunks: list[Chunk]) -> None:
        """All pages of a chunk have ended."""
        same = [entry for entry in chunks if entry.work is tag.work]
        self._leave(tag, same[0] if same else None)

    def _compared(self, parser: PageParser, page: Page, parsed: ParsedPage) -> ParsedPage:
        """With what plain decoding says and takes; that a page failed is told already."""
        if parsed.status == FAILED:
            return parsed
        return replace(parsed, compared=compare_plain(parser, page, parsed))

    def _parsed(
        self,
        parser: PageParser | ConcurrentParser | DraftParser | None,
        drafted: Drafted[Chunk],
        parse: Callable[[], ParsedPage],
    ) -> ParsedPage:
        """Returns a page's result; an error becomes a result with status FAILED."""
        page, work = drafted.page, drafted.tag.work
        name = work.place
        if isinstance(page, BrokenPage):
            return ParsedPage(name, page.number, FAILED, page.reason)
        assert parser is not None
        try:
            parsed = parse()
        except SoonerError as error:
            return ParsedPage(name, page.number, FAILED, str(error), size=page.size)
        except Exception as error:
            if self.debug:
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
        form = parser.ask.form
        return parsed.encodable(source=name, form=form, seconds=seconds, notes=notes)

    def _keep(self, drafted: Drafted[Chunk], parsed: ParsedPage) -> Line:
        """Write a page's files, then its object: a run that is killed in between does it again."""
        work, page, files, drawn = drafted.tag.work, drafted.page, list[Path](), dict[str, str]()
        task = work.task(parsed.number)
        if parsed.status != FAILED and isinstance(page, Page):
            began = time.perf_counter()
            place = work.document.place
            parsed, files, drawn = self.delivery.try_page(place, page, parsed, self.debug)
            work.written |= {parsed.number} if files else set()
            took = time.perf_counter() - began
            parsed = replace(parsed, seconds={**parsed.seconds, "write": took})
        is_aside = parsed.number in work.dying
        record = PageRecord(parsed, work.input_hash, work.settings_hash, drawn, is_aside)
        record = self.records.keep(record, self.fresh, self.debug)
        line = line_of(task, record, files, self.delivery.choices)
        self.manifest.append(line)
        is_parsed = record.page.status != FAILED
        is_settled = is_aside or (parsed.number in work.tried and is_parsed)
        self.claims.note_saved(task, forget=is_settled)
        return line

    def _count(self, record: dict[str, Any], seconds: float) -> None:
        self.counts.add(record["status"], seconds)
        if self.on_page is not None:
            self.on_page(record, self.counts)


@contextmanager
def _closing(coming: Generator[Drafted[Any], None, None]) -> Iterator[Iterator[Drafted[Any]]]:
    """Close a generator in the end, unless a thread waits for a page in it, which does so then."""
    try:
        yield coming
    finally:
        with suppress(ValueError):
            coming.close()


def _chained(
    first: Drafted[Any], coming: Iterator[Drafted[Any]]
) -> Generator[Drafted[Any], None, None]:
    yield first
    yield from coming


def _no_page() -> ParsedPage:
    raise AssertionError("a document that fails as a whole has no page to be parsed")
