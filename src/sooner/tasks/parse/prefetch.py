"""Reads and drafts the next pages while earlier ones are verified."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Generic, TypeVar

from ...documents import BrokenPage, Page, PageDraft
from ...documents.drafters import PageDrafter

Tag = TypeVar("Tag")

TICK = 0.2
"""Seconds of one wait on a queue: a longer one can't be interrupted by Ctrl-C on some systems."""


class Drafted(Generic[Tag]):
    """A page that has been read, whose draft may still be computed.

    Args:
        tag: passed through unchanged.
        page: its picture; or why there is none.
        make: makes its draft, or waits for it; `None` if there will be none.
        waited: seconds for which the consumer waited for the page.
    """

    def __init__(
        self,
        tag: Tag,
        page: Page | BrokenPage,
        make: Callable[[], PageDraft | None] | None = None,
        waited: float = 0.0,
    ) -> None:
        self.tag, self.page, self.waited = tag, page, waited
        self._make = make

    def draft(self) -> PageDraft | None:
        """Returns what was drafted, once it is there; `None` without a drafter or a picture.

        Raises:
            Exception: what drafting raised.
        """
        return None if self._make is None else self._make()


def ahead(
    pages: Iterator[tuple[Tag, Page | BrokenPage]], drafter: PageDrafter | None, workers: int = 1
) -> Generator[Drafted[Tag], None, None]:
    """Yield pages in order, while the next ones are read and drafted.

    A page comes as soon as it is read: what needs its picture alone need not wait for its draft.
    No more than `workers` pages are read ahead, so memory stays flat.

    Args:
        pages: read in a thread of its own.
        drafter: called there too; it should be `guarded`, since an error that it raises comes out
            of `Drafted.draft`.
        workers: pages that are drafted at a time. 0 reads and drafts where the page is asked for.

    Raises:
        Exception: what reading raised.
    """
    if not workers:
        yield from _inline(pages, drafter)
        return
    crew = _Workers(pages, drafter, workers)
    crew.start()
    try:
        while True:
            began = time.perf_counter()
            item = crew.take()
            if item is None:
                return
            item.waited = time.perf_counter() - began
            yield item
    finally:
        crew.stop()


def _inline(
    pages: Iterator[tuple[Tag, Page | BrokenPage]], drafter: PageDrafter | None
) -> Iterator[Drafted[Tag]]:
    while True:
        began = time.perf_counter()
        try:
            tag, page = next(pages)
        except StopIteration:
            return
        coming = _Coming(page, drafter)
        yield Drafted(tag, page, coming.made, time.perf_counter() - began)


class _Coming:
    """A draft that is computed once, by the first thread that asks."""

    def __init__(self, page: Page | BrokenPage, drafter: PageDrafter | None) -> None:
        self.page, self.drafter = page, drafter
        self._is_made = threading.Event()
        self._draft: PageDraft | None = None
        self._error: BaseException | None = None

    def make(self) -> None:
        try:
            if self.drafter is not None and isinstance(self.page, Page):
                self._draft = self.drafter(self.page)
        except BaseException as error:
            self._error = error
        self._is_made.set()

    def made(self) -> PageDraft | None:
        if not self._is_made.is_set():
            self.make()
        return self._result()

    def awaited(self) -> PageDraft | None:
        while not self._is_made.wait(TICK):
            pass
        return self._result()

    def _result(self) -> PageDraft | None:
        if self._error is not None:
            raise self._error
        return self._draft


class _Workers(Generic[Tag]):
    """Threads that read a page each time that one is taken, and draft it."""

    def __init__(
        self,
        pages: Iterator[tuple[Tag, Page | BrokenPage]],
        drafter: PageDrafter | None,
        workers: int,
    ) -> None:
        self.pages, self.drafter, self.workers = pages, drafter, workers
        self._slots = threading.Semaphore(workers)
        self._reading = threading.Lock()
        self._read: queue.SimpleQueue = queue.SimpleQueue()
        self._stopped = False

    def start(self) -> None:
        for number in range(self.workers):
            # Daemons: a drafter that hangs must not keep the program from ending.
            threading.Thread(target=self._work, name=f"pages-{number}", daemon=True).start()

    def take(self) -> Drafted[Tag] | None:
        while True:
            try:
                item = self._read.get(timeout=TICK)
                break
            except queue.Empty:
                continue
        self._slots.release()
        if isinstance(item, BaseException):
            raise item
        return item

    def stop(self) -> None:
        self._stopped = True
        self._slots.release(self.workers)

    def _work(self) -> None:
        while (coming := self._next()) is not None:
            coming.make()

    def _next(self) -> _Coming | None:
        """Read the next page and hand it over, its draft to follow."""
        self._slots.acquire()
        with self._reading:
            if self._stopped:
                return None
            try:
                tag, page = next(self.pages)
            except BaseException as error:
                self._stopped = True
                self._slots.release(self.workers)
                self._read.put(None if isinstance(error, StopIteration) else error)
                return None
            coming = _Coming(page, self.drafter)
            self._read.put(Drafted(tag, page, coming.awaited))
            return coming
