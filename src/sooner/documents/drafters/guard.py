"""Runs a drafter in processes with a timeout, so that its errors don't stop a run."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import wait

from ...checks import check_number, check_whole
from ...errors import SoonerError
from ..page import Page, PageDrafter
from ..regions import PageDraft

START = 60.0
"""Seconds that a process gets to start, and once more for its first page, which loads models."""


def guarded(drafter: PageDrafter, timeout: float, processes: int = 1) -> GuardedDrafter:
    """Returns a drafter that answers whatever `drafter` does, and may be called from several
    threads.

    One that raises, hangs or dies gives an empty draft with the reason. A process that hangs is
    killed, and started anew for the next page. The drafter must be picklable, starting takes a
    second or two and the memory of its models, and pages travel to it. It ends with its parent,
    however that ends.

    Args:
        drafter: to be guarded; loads its models itself.
        timeout: seconds for a page.
        processes: for as many pages at a time; 0 runs it in this process, where nothing can be
            interrupted: only errors are caught.

    Raises:
        SoonerError: a time that is not above 0, or fewer processes than none.
    """
    check_number("guarded: timeout", timeout, above=True)
    check_whole("guarded: processes", processes, 0)
    return GuardedDrafter(drafter, timeout, processes)


class GuardedDrafter:
    """Runs a drafter in processes of its own, where a page goes to one that is free, or in this
    one; see `guarded`."""

    def __init__(self, drafter: PageDrafter, timeout: float, count: int) -> None:
        self.drafter, self.name, self.timeout = drafter, drafter.name, timeout
        self.processes = [_Process(drafter) for _ in range(count)]
        self._free: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        for process in self.processes:
            self._free.put(process)

    def __call__(self, page: Page) -> PageDraft:
        began = time.perf_counter()
        answer = self._draft(page) if self.processes else _answer(self.drafter, page)
        if isinstance(answer, PageDraft):
            return answer
        return PageDraft([], time.perf_counter() - began, self.name, page.size, answer)

    def _draft(self, page: Page) -> PageDraft | str:
        process = self._free.get()
        try:
            return process.draft(page, self.timeout)
        finally:
            self._free.put(process)

    def close(self) -> None:
        """End the processes by force; the next page starts another one, and a call that is under
        way in another thread gets an empty draft."""
        for process in self.processes:
            process.end()


class _Process:
    """Runs a drafter in a process, which is started when the first page comes."""

    def __init__(self, drafter: PageDrafter) -> None:
        self.drafter = drafter
        self.pool: ProcessPoolExecutor | None = None
        self.pid = 0

    def draft(self, page: Page, timeout: float) -> PageDraft | str:
        """Returns a page's draft, or what went wrong."""
        limit, pool = timeout, self.pool
        future: Future[PageDraft | str] | None = None
        try:
            if pool is None:
                limit += START
                pool = self._launch()
            future = pool.submit(_answer_here, page)
            return future.result(limit)
        except BrokenProcessPool:
            reason = "its process died"
        except TimeoutError:
            reason = f"no answer within {limit if future else START:g} s"
        except Exception as error:  # a drafter or a page that can't be sent
            reason = _describe(error) if self.pool else "its process died"  # closed meanwhile
        self.end()
        return reason

    def end(self) -> None:
        """End the process, whatever it does."""
        pool, pid, self.pool, self.pid = self.pool, self.pid, None, 0
        if pid:
            with suppress(OSError):  # it is gone
                os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        if pool is not None:
            pool.shutdown(wait=pid > 0, cancel_futures=True)

    def _launch(self) -> ProcessPoolExecutor:
        # Not forked: threads of ONNX or torch would be lost in the middle of whatever they do.
        context = multiprocessing.get_context("spawn")
        self.pool = pool = ProcessPoolExecutor(1, context, _begin, (self.drafter,))
        with _deaf_to_interrupts():
            started = pool.submit(os.getpid)
        pid = started.result(START)
        if self.pool is not pool:  # closed meanwhile
            raise BrokenProcessPool
        self.pid = pid
        return pool


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes that start meanwhile ignore Ctrl-C, which a terminal sends to them, too: it is
    for their parent, which ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which would unblock what is blocked here
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_HERE: list[PageDrafter] = []
"""The drafter of a process that was started for one."""


def _begin(drafter: PageDrafter) -> None:
    """Take over a drafter in a process of its own, which ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for systems that can't block it from the start
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    _HERE.append(drafter)


def _end_with_parent() -> None:
    """End this process once its parent is gone, even in the middle of a page."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _answer_here(page: Page) -> PageDraft | str:
    return _answer(_HERE[0], page)


def _answer(drafter: PageDrafter, page: Page) -> PageDraft | str:
    """Returns a page's draft, or what went wrong."""
    try:
        return drafter(page)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return _describe(error)


def _describe(error: BaseException) -> str:
    """Returns an error in a line."""
    text = " ".join(str(error).split())[:200]
    if isinstance(error, SoonerError):
        return text
    return f"failed with {type(error).__name__}: {text}" if text else f"failed with {error!r}"
