"""Pages as they are read and drafted ahead, and futures of those under way as they end."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Generic, TypeVar

from ...documents import BrokenPage, Page, PageDraft
from ...documents.drafters import PageDrafter

Tag = TypeVar("Tag")

TICK = 0.2
"""Seconds of one wait on a queue: a longer one can't be interrupted by Ctrl-C on some systems."""


class Drafted(Generic[Tag]):
    """A page that has been read, whose draft may still be computed.

    Args:
        tag: passed through unchanged.
        page: its picture; why there is none; or `None` where the tag alone is to be passed on.

    Attributes:
        waited: seconds for which the consumer waited for the page.
        began: when its parsing began, by `time.perf_counter`.
    """

    def __init__(self, tag: Tag, page: Page | BrokenPage | None) -> None:
        self.tag, self.page = tag, page
        self.waited = self.began = 0.0
        self._draft: Future[PageDraft | None] = Future()

    def make(self, drafter: PageDrafter | None) -> None:
        """Compute the draft; what goes wrong is raised by `draft`."""
        try:
            draft = None
            if drafter is not None and isinstance(self.page, Page):
                draft = drafter(self.page)
            self._draft.set_result(draft)
        except BaseException as error:
            self._draft.set_exception(error)

    def draft(self) -> PageDraft | None:
        """Returns what was drafted, once it is there; `None` without a drafter or a picture.

        Raises:
            Exception: what drafting raised.
        """
        while not self._draft.done():
            wait([self._draft], TICK)
        return self._draft.result()


class PageStream(Generic[Tag]):
    """What comes next: a page that has been read, or a future that has ended.

    A page comes as soon as it is read: what needs its picture alone need not wait for its draft.
    No more than `workers` pages are read ahead, so memory stays flat.

    Args:
        pages: read in threads of their own, one page at a time.
        drafter: called there too; it should be `guarded`, since an error that it raises comes out
            of `Drafted.draft`.
        workers: pages that are read and drafted at a time.

    Attributes:
        notify: for `Future.add_done_callback`.
    """

    def __init__(
        self,
        pages: Iterator[tuple[Tag, Page | BrokenPage | None]],
        drafter: PageDrafter | None,
        workers: int = 1,
    ) -> None:
        self.pages, self.drafter, self.workers = pages, drafter, workers
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.notify = self._events.put
        self._coming: deque[Drafted[Tag] | BaseException | None] = deque()
        self._slots, self._reading = threading.Semaphore(workers), threading.Lock()
        self._is_closed = False
        for number in range(workers):
            # Daemons: a drafter that hangs must not keep the program from ending.
            threading.Thread(target=self._work, name=f"pages-{number}", daemon=True).start()

    def next(self, has_room: bool) -> Drafted[Tag] | Future[Any] | None:
        """Returns a future that has ended, or a page if there is room for it; waits for either.

        Returns:
            `None` behind the last page.

        Raises:
            Exception: what reading raised.
        """
        began = time.perf_counter()
        while not (has_room and self._coming):
            try:
                event = self._events.get(timeout=TICK)
            except queue.Empty:
                continue
            if isinstance(event, Future):
                return event
            self._coming.append(event)
        item = self._coming.popleft()
        self._slots.release()
        if isinstance(item, BaseException):
            raise item
        if item is not None:
            item.waited = time.perf_counter() - began
        return item

    def close(self) -> None:
        """Read nothing more."""
        self._is_closed = True
        self._slots.release(self.workers)

    def _work(self) -> None:
        while (drafted := self._read()) is not None:
            drafted.make(self.drafter)

    def _read(self) -> Drafted[Tag] | None:
        """Read the next page and hand it over, its draft to follow."""
        self._slots.acquire()
        with self._reading:
            if self._is_closed:
                with suppress(AttributeError):
                    self.pages.close()  # type: ignore[attr-defined]
                return None
            try:
                drafted = Drafted(*next(self.pages))
            except BaseException as error:
                self.close()
                self._events.put(None if isinstance(error, StopIteration) else error)
                return None
            self._events.put(drafted)
            return drafted
