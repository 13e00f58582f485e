"""Drafters that can't break or hold up a run."""

from __future__ import annotations

import multiprocessing
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

from ...errors import SoonerError
from ..page import Page
from ..regions import PageDraft
from .base import Drafter

GRACE = 5.0
"""Seconds for a process to end by itself."""


def guarded(
    drafter: Drafter, timeout: float, process: bool = False, start: float = 60.0
) -> GuardedThread | GuardedProcess:
    """A drafter that answers within `timeout` seconds, whatever `drafter` does.

    One that raises, hangs or dies gives an empty draft with the reason. What it can't do depends on
    where it runs:

    - in a thread (the default) nothing can be interrupted. A hanging drafter goes on in the
      background, takes its share of the CPU and keeps its memory, and is not asked again before it
      ends; one that kills the process, kills the process.
    - in a process of its own anything can be: it is killed and started anew for the next page.
      The drafter must be picklable, starting takes a second or two and the memory of its models,
      and pages travel to it.

    Args:
        drafter: to be guarded; loads its models itself.
        timeout: seconds for a page.
        process: run it in a process of its own.
        start: seconds that such a process gets in addition, for its first page.

    Raises:
        SoonerError: a time that is not above 0.
    """
    if not (timeout > 0 and start > 0):
        raise SoonerError(f"guarded: timeout is {timeout}, start {start}; both must be above 0")
    if process:
        return GuardedProcess(drafter, timeout, start)
    return GuardedThread(drafter, timeout)


class GuardedThread:
    """Runs a drafter in a thread; `guarded` says what that can't do."""

    def __init__(self, drafter: Drafter, timeout: float) -> None:
        self.drafter, self.timeout = drafter, timeout
        self.name = drafter.name
        self._running: threading.Thread | None = None

    def __call__(self, page: Page) -> PageDraft:
        began = time.perf_counter()
        if self._running is not None and self._running.is_alive():
            return _empty(self.name, page, began, "still busy with an earlier page")
        answer: list[PageDraft | BaseException] = []
        self._running = threading.Thread(
            target=_answer, args=(self.drafter, page, answer), name="drafter", daemon=True
        )
        self._running.start()
        self._running.join(self.timeout)
        if not answer:
            return _empty(self.name, page, began, f"no answer within {self.timeout:g} s")
        if isinstance(answer[0], PageDraft):
            return answer[0]
        return _empty(self.name, page, began, _said(answer[0]))

    def close(self) -> None:
        """Nothing to do: a thread can't be ended, and does not keep the program from ending."""


class GuardedProcess:
    """Runs a drafter in a process of its own, which is started when the first page comes."""

    def __init__(self, drafter: Drafter, timeout: float, start: float) -> None:
        self.drafter, self.timeout, self.start = drafter, timeout, start
        self.name = drafter.name
        self._process: Any = None
        self._pipe: Connection | None = None

    def __call__(self, page: Page) -> PageDraft:
        began = time.perf_counter()
        limit = self.timeout
        try:
            if self._pipe is None:
                self._launch()
                limit += self.start  # the first page loads the models
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
            answer = _said(error)
        return answer if isinstance(answer, PageDraft) else _empty(self.name, page, began, answer)

    def close(self) -> None:
        """End the process, by force if need be. The next page starts another one."""
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            self._process.terminate()
            self._process.join(GRACE)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
        self._process = self._pipe = None

    def _launch(self) -> None:
        # Not forked: threads of ONNX or torch would be lost in the middle of whatever they do.
        context = multiprocessing.get_context("spawn")
        pipe, other = context.Pipe()
        process = context.Process(target=_serve, args=(self.drafter, other), daemon=True)
        process.start()
        other.close()
        self._process, self._pipe = process, pipe
        # A page is larger than a pipe: without somebody at the other end, sending would wait.
        if not pipe.poll(self.start):
            raise SoonerError(f"its process did not start within {self.start:g} s")
        pipe.recv()

    def _died(self) -> str:
        if self._process is not None:
            self._process.join(GRACE)
        code = None if self._process is None else self._process.exitcode
        self.close()
        return f"its process died (exit code {code})"


def _serve(drafter: Drafter, pipe: Connection) -> None:
    pipe.send(True)
    while True:
        try:
            page = pipe.recv()
        except (EOFError, OSError):
            return
        answer: list[PageDraft | BaseException] = []
        _answer(drafter, page, answer)
        pipe.send(answer[0] if isinstance(answer[0], PageDraft) else _said(answer[0]))


def _answer(drafter: Drafter, page: Page, answer: list[PageDraft | BaseException]) -> None:
    try:
        answer.append(drafter(page))
    except BaseException as error:
        answer.append(error)


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())[:200]
    if isinstance(error, SoonerError):
        return text
    return f"failed with {type(error).__name__}: {text}" if text else f"failed with {error!r}"


def _empty(name: str, page: Page, began: float, reason: str) -> PageDraft:
    return PageDraft([], time.perf_counter() - began, name, page.size, reason)
