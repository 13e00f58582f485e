"""The loop of a drafter's own process: receives pages, sends drafts."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection, wait

from ...errors import SoonerError
from ..page import Page
from ..regions import PageDraft
from .base import PageDrafter


def serve(drafter: PageDrafter, pipe: Connection) -> None:
    """Answer pages with drafts, or with what went wrong, until the other end is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for systems that can't block it from the start
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    try:
        pipe.send(True)
        while True:
            page = pipe.recv()
            results: list[PageDraft | BaseException] = []
            answer(drafter, page, results)
            pipe.send(results[0] if isinstance(results[0], PageDraft) else describe(results[0]))
    except (EOFError, OSError):  # nobody is there any more
        return


def _end_with_parent() -> None:
    """End this process once its parent is gone, even in the middle of a page."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def answer(drafter: PageDrafter, page: Page, results: list[PageDraft | BaseException]) -> None:
    """Put a page's draft, or the error instead of it, into `results`."""
    try:
        results.append(drafter(page))
    except BaseException as error:
        results.append(error)


def describe(error: BaseException) -> str:
    """Returns an error in a line."""
    text = " ".join(str(error).split())[:200]
    if isinstance(error, SoonerError):
        return text
    return f"failed with {type(error).__name__}: {text}" if text else f"failed with {error!r}"
