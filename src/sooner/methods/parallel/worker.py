"""Where a draft runs: in another process, in a thread with a stream of its own, or in line."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import torch

from ...errors import SoonerError
from .board import Board
from .server import DraftServer, Job

logger = logging.getLogger("sooner")

GRACE = 2.0
"""Seconds that a worker gets to stop before it is made to."""
NAP = 2e-5
"""Seconds between two looks at the board; a draft forward takes many of these."""


class Worker:
    """A draft server and the way to talk to it. The base class runs it in line.

    Attributes:
        board: where its tokens appear.
        failure: why it can't be used any more, or `None`.
    """

    shared = False

    def __init__(self, job: Job, board: Board) -> None:
        self.board = board
        self.failure: str | None = None
        self.server = DraftServer(job, board)
        self._launch()

    def _launch(self) -> None:
        with torch.inference_mode():
            self.server.embed()

    @property
    def is_usable(self) -> bool:
        """Whether it still drafts."""
        return self.failure is None

    def order(self, *order: Any) -> None:
        """Give an order; a worker that is gone ignores it."""
        with torch.inference_mode():
            self.server.take(order)

    def wait(self, wanted: dict[int, int], update: int, seconds: float) -> None:
        """Until each original row shows the wanted number of tokens, or time is up.

        What is shown counts once update number `update` is acknowledged; before, it may be a draft
        that the update throws away. In line, this is when drafting happens.
        """
        with torch.inference_mode():
            while not self.shows(wanted, update) and not self.server.is_idle:
                self.server.step()

    def overlap(self) -> None:
        """A target forward begins: workers that run beside it need not be told.

        In line, draft as far as a worker beside it would, so that tests see the same course.
        """
        with torch.inference_mode():
            while not self.server.is_idle:
                self.server.step()

    def shows(self, wanted: dict[int, int], update: int) -> bool:
        """Whether that is on the board by now."""
        return self.board.acknowledged >= update and all(
            int(self.board.lengths[row]) >= count for row, count in wanted.items()
        )

    def close(self) -> None:
        """Stop working; nothing is left behind."""


class _Queue:
    """Orders within a process, with the face of a pipe's receiving end."""

    def __init__(self) -> None:
        self.waiting: queue.SimpleQueue = queue.SimpleQueue()

    def poll(self, timeout: float = 0.0) -> bool:
        return not self.waiting.empty()

    def recv(self) -> tuple:
        return self.waiting.get()


class ThreadWorker(Worker):
    """In a thread: shares the process's cores, or runs on a CUDA stream of its own."""

    def _launch(self) -> None:
        self.orders = _Queue()
        self.thread = threading.Thread(target=self._serve, name="sooner-draft", daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        device = self.server.job.adapter.device
        stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        try:
            with torch.cuda.stream(stream) if stream is not None else contextlib.nullcontext():
                self.server.serve(self.orders)
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"

    def order(self, *order: Any) -> None:
        self.orders.waiting.put(order)

    def wait(self, wanted: dict[int, int], update: int, seconds: float) -> None:
        _watch(self, wanted, update, seconds)

    def overlap(self) -> None:
        """The thread runs beside the target by itself."""

    def close(self) -> None:
        self.orders.waiting.put(("stop",))
        self.thread.join(GRACE)


class ProcessWorker(Worker):
    """In a forked process with one thread of its own: cores of its own, no interpreter lock shared.

    The child inherits models and inputs, so nothing is copied or sent. It ends when it is told to,
    when its parent's end of the pipe closes, or, at the latest, when it finds its parent gone.
    """

    shared = True

    def _launch(self) -> None:
        context = multiprocessing.get_context("fork")
        self.orders, theirs = context.Pipe()
        arguments = (self.server, theirs, self.orders, os.getpid())
        self.process = context.Process(target=_serve_forked, args=arguments, daemon=True)
        self.process.start()
        theirs.close()

    @property
    def is_usable(self) -> bool:
        if self.failure is None and not self.process.is_alive():
            self.failure = self._last_words()
        return self.failure is None

    def _last_words(self) -> str:
        with contextlib.suppress(OSError, EOFError):
            if self.orders.poll():
                return str(self.orders.recv())
        return f"worker process ended with exit code {self.process.exitcode}"

    def order(self, *order: Any) -> None:
        if self.failure is not None:
            return
        try:
            self.orders.send(order)
        except OSError:
            self.failure = self._last_words()

    def wait(self, wanted: dict[int, int], update: int, seconds: float) -> None:
        _watch(self, wanted, update, seconds)

    def overlap(self) -> None:
        """The process runs beside the target by itself."""

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.orders.send(("stop",))
        self.process.join(GRACE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.orders.close()
        self.process.close()


def _watch(worker: Worker, wanted: dict[int, int], update: int, seconds: float) -> None:
    """Look at the board until it shows what is wanted, time is up, or the worker is gone."""
    deadline = time.perf_counter() + seconds
    while not worker.shows(wanted, update):
        if time.perf_counter() > deadline or not worker.is_usable:
            return
        time.sleep(NAP)


def _serve_forked(server: DraftServer, orders: Any, parents_end: Any, parent: int) -> None:
    """Body of the child process."""
    live_as_child(partial(server.serve, orders), orders, parents_end, parent)


def live_as_child(
    serve: Callable[[], None], orders: Any, parents_end: Any, parent: int
) -> NoReturn:
    """Serve in a forked process until that is over or the parent is gone, then end.

    Ctrl-C is the parent's to handle; an error travels to it as this process's last words.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parents_end.close()  # or the pipe would never report that the parent is gone
    torch.set_num_threads(1)  # a forked child has none of OpenMP's threads
    threading.Thread(target=_follow_parent, args=(parent,), daemon=True).start()
    try:
        serve()
    except (EOFError, BrokenPipeError):
        pass
    except BaseException as error:
        with contextlib.suppress(OSError):
            orders.send(f"{type(error).__name__}: {error}")
    os._exit(0)  # no exit handler of the parent's may run here


def _follow_parent(parent: int) -> None:
    """End with the parent, even if it was killed while other children held its pipe open."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


PLACEMENTS: dict[str, type[Worker]] = {
    "process": ProcessWorker,
    "thread": ThreadWorker,
    "inline": Worker,
}


def place(placement: str, device: torch.device) -> type[Worker]:
    """The worker class of a placement; `auto` is a process on CPUs, a thread on CUDA.

    Raises:
        SoonerError: a forked process can't use CUDA.
    """
    can_fork = device.type == "cpu" and hasattr(os, "fork")
    if placement == "auto":
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        placement = "process" if can_fork and cores > 1 else "thread"
    if placement == "process" and not can_fork:
        raise SoonerError(
            f"placement='process' forks, which a draft on {device} does not survive; use 'thread'"
        )
    return PLACEMENTS[placement]


def launch(kind: type[Worker], job: Job, rows: Sequence[int]) -> Worker:
    """Start a worker for a run over `rows`."""
    return kind(job, Board(*board_sizes(job, len(rows)), shared=kind.shared))


def board_sizes(job: Job, rows: int) -> tuple[int, int, int, int]:
    """How large a board a job needs: rows, positions, ring, vocab."""
    ring = 2 * job.window + 2
    return rows, job.limit + ring, ring, job.vocab if job.processing.do_sample else 0
