"""Parses documents into a folder of results, page by page; a run can be interrupted and resumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...documents import BrokenPage, Document, Page
from ...documents.drafters import PageDrafter
from ...errors import SoonerError, is_device_fault
from .delivery import Delivery, record_of
from .output import FolderLock
from .plan import DocumentWork, Intake, Manifest, plan, touch
from .prefetch import Drafted, ahead
from .result import FAILED, PARTIAL, Counts, ParsedPage

if TYPE_CHECKING:
    from .parser import PageParser
    from .unverified import DraftParser


OnPage = Callable[[dict[str, Any], Counts], None]

"""Called with a page's record and the counts, after its files are on disk."""


class DeviceFaultError(SoonerError):
    """The accelerator failed, so that every further page would fail in this process."""


@dataclass
class ParseJob:
    """Parses documents, one page after the other.

    Documents are opened and hashed when their turn comes, so that a run over thousands of them
    begins with its first page. While it runs, no other process may write to its folder.

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
        counts: pages done so far.
        works: documents opened so far.
        manifest: of the folder, read when the run begins.

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
    told_of: Callable[[Path], list[str]] | None = None
    on_page: OnPage | None = None
    debug: bool = False
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        for document in self.documents:
            self.delivery.check(document)
        touch(self.delivery.folder)
        self.works: list[DocumentWork] = []
        self.counts.documents = len(self.documents)
        self._fault: Exception | None = None

    def run(self, load: Callable[[], PageParser | DraftParser]) -> Counts:
        """Do what is left to be done.

        Args:
            load: makes the parser, when the first page needs it.

        Raises:
            OutputError: nothing more can be written; what is finished is kept. Or another process
                has the folder.
            DeviceFaultError: the accelerator failed; what is finished is kept.
            SoonerError: the model can't be loaded; or, with `stop_on_error`, what is wrong with a
                page.
        """
        with FolderLock(self.delivery.folder):
            self.manifest = Manifest(self.delivery.folder)
            try:
                self._run(load)
            finally:
                self.manifest.tidy()
        return self.counts

    def _run(self, load: Callable[[], PageParser | DraftParser]) -> None:
        parser: PageParser | DraftParser | None = None
        before: DocumentWork | None = None
        with closing(ahead(self._pages(), self.drafter, self.workers)) as coming:
            for drafted in coming:
                if before is not None and drafted.tag is not before:
                    self._finish(before)
                before = drafted.tag
                if parser is None and isinstance(drafted.page, Page):
                    parser = load()
                    self._warm_up(parser, drafted.page)
                self._do(parser, drafted)
        if before is not None:
            self._finish(before)
        for work in self.works:
            if not work.todo and not self.delivery.has_document(work.document):
                self._finish(work)

    def _warm_up(self, parser: PageParser | DraftParser, page: Page) -> None:
        if self.compare and not self.drafts_only:
            warm_up(cast("PageParser", parser), page)

    def _do(self, parser: PageParser | DraftParser | None, drafted: Drafted[DocumentWork]) -> None:
        """Parse a page, keep what came of it, and count it."""
        began = time.perf_counter()
        parsed = self._parsed(parser, drafted)
        e2e = drafted.waited + time.perf_counter() - began
        parsed = replace(parsed, seconds={**parsed.seconds, "e2e": e2e})
        if self.compare and not self.drafts_only and isinstance(drafted.page, Page):
            parsed = self._compared(cast("PageParser", parser), drafted.page, parsed)
        record = self._keep(drafted, parsed, parser)
        self._count(record, drafted.waited + time.perf_counter() - began)
        where = f"'{drafted.tag.document.path}'"
        where += f", page {parsed.number}" if parsed.number else ""
        if self._fault is not None:
            raise DeviceFaultError(
                f"the device failed at {where}: {_one_line(self._fault)}; what is finished is "
                "kept, the same command goes on there"
            ) from self._fault
        if self.stop_on_error and parsed.status == FAILED:
            raise SoonerError(f"{where}: {parsed.reason}")

    def _compared(self, parser: PageParser, page: Page, parsed: ParsedPage) -> ParsedPage:
        """With what plain decoding says and takes; that a page failed is told already."""
        if parsed.status == FAILED:
            return parsed
        return replace(parsed, compared=compare_plain(parser, page, parsed))

    def _pages(self) -> Iterator[tuple[DocumentWork, Page | BrokenPage]]:
        """Pages to be done, each document opened when the one before it is read."""
        for document in self.documents:
            work = self._opened(document)
            if work.todo:
                for page in self.intake.read(work):
                    yield work, page

    def _opened(self, document: Document) -> DocumentWork:
        work = plan(
            document,
            self.intake,
            self.manifest,
            self.settings_hash,
            self.delivery.has,
            self.fresh,
            self.drafts_only,
        )
        self.manifest.forget_stale(document.place, work.input_hash)
        self.works.append(work)
        self.counts.opened += 1
        self.counts.total += work.todo
        self.counts.before += work.done
        return work

    def _parsed(
        self, parser: PageParser | DraftParser | None, drafted: Drafted[DocumentWork]
    ) -> ParsedPage:
        """A page's result; an error becomes a result with status FAILED."""
        page, work = drafted.page, drafted.tag
        name = str(work.document.place)
        if isinstance(page, BrokenPage):
            return ParsedPage(name, page.number, FAILED, page.reason)
        assert parser is not None
        try:
            parsed = parser(page, None if self.drafter is None else drafted.draft)
        except SoonerError as error:
            return ParsedPage(name, page.number, FAILED, str(error), size=page.size)
        except Exception as error:
            if self.debug:
                raise
            self._fault = error if is_device_fault(error) else None
            return ParsedPage(name, page.number, FAILED, _one_line(error), size=page.size)
        draft = drafted.draft()  # known by now
        seconds = {"drafter": draft.seconds if draft is not None else 0.0, **parsed.seconds}
        seconds["wait"] = drafted.waited + seconds.get("wait", 0.0)
        notes = [] if self.told_of is None else self.told_of(work.document.path)
        return replace(parsed, source=name, seconds=seconds, notes=[*notes, *parsed.notes])

    def _keep(
        self,
        drafted: Drafted[DocumentWork],
        parsed: ParsedPage,
        parser: PageParser | DraftParser | None,
    ) -> dict[str, Any]:
        """Write a page's files, then its record: a run that is killed in between does it again."""
        work, page = drafted.tag, drafted.page
        names = []
        if parsed.status != FAILED and parser is not None and isinstance(page, Page):
            names = self.delivery.write_page(work.document, page, parsed, parser.ask.form)
        record = record_of(work, parsed, names)
        self.manifest.add(record)
        return record

    def _count(self, record: dict[str, Any], seconds: float) -> None:
        counts, status = self.counts, record["status"]
        counts.failed += status == FAILED
        counts.done += status != FAILED
        counts.partial += status == PARTIAL
        counts.total = max(counts.total, counts.done + counts.failed)
        counts.seconds += seconds
        if self.on_page is not None:
            self.on_page(record, counts)

    def _finish(self, work: DocumentWork) -> None:
        """Write a document's own files."""
        place = work.document.place
        records = self.manifest.current(
            place, work.input_hash, self.settings_hash, self.drafts_only
        )
        self.delivery.write_document(work, records)


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


WARM_UP = 4

"""New tokens of the run before the clock counts: first forwards pay for allocations."""

OUTSIDE = ("e2e", "drafter", "wait", "regions")

"""Times that contain others, or that were spent beside something else."""


def warm_up(parser: PageParser, page: Page) -> None:
    """Decode a few tokens of a page, untimed."""
    few = replace(parser.settings, max_new_tokens=WARM_UP)
    type(parser)(parser.pair, few)(page)


def compare_plain(parser: PageParser, page: Page, parsed: ParsedPage) -> dict[str, Any]:
    """Decode a page plainly with the same engine, and compare both.

    Args:
        parsed: what became of it, with `seconds` of its drafter.

    Returns:
        `parity` (`identical`, or from which letter on the texts differ), `decode_speedup` and
        `e2e_speedup` (eq. 13 and 14 of the paper on this page; its drafter counts in full, as if
        nothing had run beside it), `plain_seconds`. Speed-ups are `None` for texts that did not
        come to an end, and for those that should be equal and are not.
    """
    from ...stats.run import EXACT  # torch, which drafts alone don't need

    plain = parser(page)
    is_same = plain.raw == parsed.raw
    told: dict[str, Any] = {
        "parity": "identical" if is_same else f"differs from letter {_first(plain, parsed)} on",
        "decode_speedup": None,
        "e2e_speedup": None,
        "plain_seconds": round(_alone(plain), 4),
    }
    ended = plain.counts_for_speed and parsed.counts_for_speed
    if not ended or (parsed.mode == EXACT and not is_same) or not _decoding(parsed):
        return told
    own = _alone(parsed) + parsed.seconds.get("drafter", 0.0)
    speedups = _decoding(plain) / _decoding(parsed), _alone(plain) / own
    return {**told, "decode_speedup": speedups[0], "e2e_speedup": speedups[1]}


def _first(plain: ParsedPage, parsed: ParsedPage) -> int:
    pairs = zip(plain.raw, parsed.raw, strict=False)
    same = [one == other for one, other in pairs]
    return same.index(False) if False in same else len(same)


def _decoding(parsed: ParsedPage) -> float:
    """Seconds of decoding, regions included."""
    return parsed.seconds.get("decode", 0.0)


def _alone(parsed: ParsedPage) -> float:
    """Seconds of everything that the target did."""
    return sum(took for name, took in parsed.seconds.items() if name not in OUTSIDE)
