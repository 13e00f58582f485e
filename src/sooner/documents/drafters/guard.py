"""Runs a drafter in processes with a timeout, so that its errors don't stop a run."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from ...checks import check_number, check_whole
from ...errors import SoonerError
from ..page import Page, PageDrafter
from ..regions import PageDraft

START, GRACE = 60.0, 5.0
"""Seconds that a process gets in addition for its first page, and to end by itself."""


def guarded(
    drafter: PageDrafter, timeout: float, processes: int = 1
) -> GuardedProcesses | InlineDrafter:
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
    if not processes:
        return InlineDrafter(drafter)
    return GuardedProcesses(drafter, timeout, processes)


class InlineDrafter:
    """Runs a drafter in this process; its errors become empty drafts."""

    def __init__(self, drafter: PageDrafter) -> None:
        self.drafter, self.name = drafter, drafter.name

    def __call__(self, page: Page) -> PageDraft:
        began = time.perf_counter()
        answer = _answer(self.drafter, page)
        return answer if isinstance(answer, PageDraft) else _empty(self.name, page, began, answer)

    def close(self) -> None:
        """Nothing to do."""


class _Process:
    """Runs a drafter in a process of its own, which is started when the first page comes."""

    def __init__(self, drafter: PageDrafter, timeout: float) -> None:
        self.drafter, self.timeout = drafter, timeout
        self.name = drafter.name
        self._process: Any = None
        self._pipe: Connection | None = None
        self._turn = threading.RLock()

    def __call__(self, page: Page) -> PageDraft:
        with self._turn:
            return self._draft(page)

    def _draft(self, page: Page) -> PageDraft:
        began = time.perf_counter()
        limit = self.timeout
        try:
            if self._pipe is None:
                self._launch()
                limit += START  # the first page loads the models
            assert self._pipe is not None
            self._pipe.send(page)
            if self._pipe.poll(limit):
                answer = self._pipe.recv()
            else:
                self.close()
                answer = f"no answer within {limit:g} s"
        except (EOFError, OSError):
            answer = self._died()
        except Exception as error:  # a drafter or a page that can't be sent
            self.close()
            answer = _describe(error)
        return answer if isinstance(answer, PageDraft) else _empty(self.name, page, began, answer)

    def close(self) -> None:
        """End the process, by force if need be. The next page starts another one.

        A call that is under way in another thread gets an empty draft.
        """
        while True:
            _end(self._process)
            # Only then: a call that waits at the pipe hears that the other end is gone.
            if self._turn.acquire(timeout=0.1):
                break
        try:
            if self._pipe is not None:
                self._pipe.close()
            _end(self._process)
            self._process = self._pipe = None
        finally:
            self._turn.release()

    def _launch(self) -> None:
        # Not forked: threads of ONNX or torch would be lost in the middle of whatever they do.
        context = multiprocessing.get_context("spawn")
        pipe, other = context.Pipe()
        process = context.Process(target=_serve, args=(self.drafter, other), daemon=True)
        with _deaf_to_interrupts():
            process.start()
        other.close()
        self._process, self._pipe = process, pipe
        # A page is larger than a pipe: without somebody at the other end, sending would wait.
        if not pipe.poll(START):
            raise SoonerError(f"its process did not start within {START:g} s")
        pipe.recv()

    def _died(self) -> str:
        if self._process is not None:
            self._process.join(GRACE)
        code = None if self._process is None else self._process.exitcode
        self.close()
        return f"its process died (exit code {code})"


class GuardedProcesses:
    """Runs a drafter in processes of its own; a page goes to one that is free."""

    def __init__(self, drafter: PageDrafter, timeout: float, count: int) -> None:
        self.name = drafter.name
        self.processes = [_Process(drafter, timeout) for _ in range(count)]
        self._free: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        for process in self.processes:
            self._free.put(process)

    def __call__(self, page: Page) -> PageDraft:
        process = self._free.get()
        try:
            return process(page)
        finally:
            self._free.put(process)

    def close(self) -> None:
        """End the processes, by force if need be; the next page starts another one."""
        for process in self.processes:
            process.close()


def _end(process: Any) -> None:
    if process is None:
        return
    process.terminate()
    process.join(GRACE)
    if process.is_alive():
        process.kill()
        process.join()


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


def _empty(name: str, page: Page, began: float, reason: str) -> PageDraft:
    return PageDraft([], time.perf_counter() - began, name, page.size, reason)


def _serve(drafter: PageDrafter, pipe: Connection) -> None:
    """Answer pages with drafts, or with what went wrong, until the other end is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for systems that can't block it from the start
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    try:
        pipe.send(True)
        while True:
            pipe.send(_answer(drafter, pipe.recv()))
    except (EOFError, OSError):  # nobody is there any more
        return


def _end_with_parent() -> None:
    """End this process once its parent is gone, even in the middle of a page."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
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
    text = " ".join(str(error).split())[:200]
    if isinstance(error, SoonerError):
        return text
    return f"failed with {type(error).__name__}: {text}" if text else f"failed with {error!r}"
