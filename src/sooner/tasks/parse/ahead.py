"""Pages with their drafts, made one ahead of where they are verified."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from ...documents import BrokenPage, Page, PageDraft
from ...documents.drafters import Drafter

Tag = TypeVar("Tag")


@dataclass(frozen=True)
class Drafted(Generic[Tag]):
    """A page that is ready to be verified.

    Attributes:
        tag: what it came with.
        page: its picture; or why there is none.
        draft: what was drafted; `None` without a drafter or a picture.
        waited: seconds that whoever asked for it had to wait.
    """

    tag: Tag
    page: Page | BrokenPage
    draft: PageDraft | None = None
    waited: float = 0.0


def one_ahead(
    pages: Iterator[tuple[Tag, Page | BrokenPage]], drafter: Drafter | None
) -> Iterator[Drafted[Tag]]:
    """Pages with drafts, in order; the next one is read and drafted while the last is verified.

    No more than one is made ahead, so memory stays flat.

    Args:
        pages: read in a thread of its own.
        drafter: called there too; it should be `guarded`, since an error that it raises comes out
            here.

    Raises:
        Exception: what reading or drafting raised.
    """
    worker = _Worker(pages, drafter)
    worker.start()
    try:
        while True:
            began = time.perf_counter()
            made = worker.take()
            if made is None:
                return
            yield Drafted(*made, waited=time.perf_counter() - began)
    finally:
        worker.stop()


class _Worker(Generic[Tag]):
    """Makes a page each time that one is taken."""

    def __init__(
        self, pages: Iterator[tuple[Tag, Page | BrokenPage]], drafter: Drafter | None
    ) -> None:
        self.pages, self.drafter = pages, drafter
        self._slots = threading.Semaphore(1)
        self._made: queue.SimpleQueue = queue.SimpleQueue()
        self._stopped = False

    def start(self) -> None:
        # A daemon: a drafter that hangs must not keep the program from ending.
        threading.Thread(target=self._work, name="pages", daemon=True).start()

    def take(self) -> tuple[Tag, Page | BrokenPage, PageDraft | None] | None:
        while True:
            try:
                made = self._made.get(timeout=0.2)  # so that Ctrl-C is heard on every system
                break
            except queue.Empty:
                continue
        self._slots.release()
        if isinstance(made, BaseException):
            raise made
        return made

    def stop(self) -> None:
        self._stopped = True
        self._slots.release()

    def _work(self) -> None:
        try:
            for tag, page in self._while_wanted():
                draft = None
                if self.drafter is not None and isinstance(page, Page):
                    draft = self.drafter(page)
                self._made.put((tag, page, draft))
            self._made.put(None)
        except BaseException as error:
            self._made.put(error)

    def _while_wanted(self) -> Iterator[tuple[Tag, Page | BrokenPage]]:
        while True:
            self._slots.acquire()
            if self._stopped:
                return
            try:
                yield next(self.pages)
            except StopIteration:
                return
