"""Runs a drafter in processes with a timeout, so that its errors don't stop a run."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from ...checks import check_number, check_whole
from ...documents.page import Page, PageDrafter
from ...documents.regions import PageDraft
from ...errors import SoonerError, error_line

START = 60.0
"""Seconds that a process gets more for its first page: it starts, and loads models."""


class GuardedDrafter:
    """Answers whatever a drafter does, and may be called from several threads.

    A drafter that raises, hangs or dies gives an empty draft with the reason. It runs in processes
    of its own, where a page goes to one that is free. A process that hangs is killed, and started
    anew for the next page. The drafter must be picklable, starting takes a second or two and the
    memory of its models, and pages travel to it. It ends with its parent, however that ends.

    Args:
        drafter: to be guarded; loads its models itself.
        timeout: seconds for a page.
        processes: for as many pages at a time; 0 runs it in this process, where nothing can be
            interrupted: only errors are caught.

    Raises:
        SoonerError: a time that is not above 0, or fewer processes than none.
    """

    def __init__(self, drafter: PageDrafter, timeout: float, processes: int = 1) -> None:
        check_number("GuardedDrafter: timeout", timeout, above=True)
        check_whole("GuardedDrafter: processes", processes, 0)
        self.drafter, self.name, self.timeout = drafter, drafter.name, timeout
        self.processes = [_Process(drafter) for _ in range(processes)]
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
        """End the processes by force: calls get empty drafts, the next page starts another one."""
        for process in self.processes:
            process.end()


class _Process:
    """Runs a drafter in a process, which is started when the first page comes."""

    def __init__(self, drafter: PageDrafter) -> None:
        self.drafter, self.lock = drafter, threading.Lock()
        self.process: BaseProcess | None = None
        self.pipe: Connection

    def draft(self, page: Page, timeout: float) -> PageDraft | str:
        """Returns a page's draft, or what went wrong."""
        try:
            if self.process is None or not self.process.is_alive():
                timeout += START
                self._start()
            self.pipe.send(page)
            if self.pipe.poll(timeout):
                answer: PageDraft | str = self.pipe.recv()
                return answer
            reason = f"no answer within {timeout:g} s"
        except (EOFError, OSError):  # also where it was closed meanwhile
            reason = "its process died"
        except Exception as error:  # a drafter or a page that can't be sent
            reason = _describe(error)
        self.end()
        return reason

    def end(self) -> None:
        """End the process, whatever it does."""
        with self.lock:
            if self.process is not None:
                self.process.kill()
                self.process.join()

    def _start(self) -> None:
        # Not forked: threads of ONNX or torch would be lost in the middle of whatever they do.
        context = multiprocessing.get_context("spawn")
        self.pipe, far_end = context.Pipe()
        process = context.Process(target=_serve, args=(self.drafter, far_end), daemon=True)
        with self.lock, far_end, _deaf_to_interrupts():
            process.start()
            self.process = process


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes that start meanwhile ignore Ctrl-C, which is for their parent, who ends them."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # which would unblock what is blocked here
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(drafter: PageDrafter, pipe: Connection) -> None:
    """Answer pages in a process of its own, which ends with its parent, even within a page."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both: for the parent
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    with suppress(EOFError):
        while True:
            pipe.send(_answer(drafter, pipe.recv()))


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


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
    return str(error) if isinstance(error, SoonerError) else f"failed with {error_line(error)}"
