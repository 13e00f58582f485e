"""Where a draft runs: in another process, in a thread with a stream of its own, or in line."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from ...errors import SoonerError
from ..threads import DRAFT_THREADS, cores
from .mailbox import Mailbox, TokenIndices
from .server import DraftJob, DraftServer
from .shared_memory import Arena, Board
from .wakeup import ChildEnd, ParentEnd, ThreadWakeup, Wakeup, socket_ends

logger = logging.getLogger("sooner")

NAP = 2e-5
"""Seconds between two looks at the board; a draft forward takes many of these."""
REAPED_WITHIN = 1.0
"""Seconds in which the system tells how a process ended whose socket is closed."""


class Worker:
    """Holds a draft server and the way to talk to it. The base class runs it in line.

    Nothing that the decoder tells a worker waits for it; see `Mailbox`.

    Attributes:
        board: where its tokens appear.
        mail: what it is told.
        failure: why it can't be used any more, or `None`.
    """

    def __init__(self, job: DraftJob, board: Board, mail: Mailbox) -> None:
        self.board, self.mail = board, mail
        self.failure: str | None = None
        self.server = DraftServer(job, board, mail)
        self._launch()

    def _launch(self) -> None:
        with torch.inference_mode():
            self.server.embed()

    @property
    def is_usable(self) -> bool:
        """Whether it still drafts."""
        return self.failure is None

    def prefill(self, tokens: TokenIndices | None) -> None:
        """Set its prefill going, see `Mailbox.prefill`; a worker that is gone ignores it."""
        if self.failure is None:
            self.mail.prefill(tokens)
            self._notify()

    def commit(self, number: int, new: Mapping[int, tuple[int, list[int]]]) -> None:
        """Tell what was committed, see `Mailbox.commit`; a worker that is gone ignores it."""
        if self.failure is None:
            self.mail.commit(number, new)
            self._notify()

    def select_rows(self, rows: Sequence[int]) -> None:
        """Only these original rows go on; a worker that is gone ignores it."""
        if self.failure is None:
            self.mail.select_rows(rows)
            self._notify()

    def _notify(self) -> None:
        """Let it look into its mailbox."""
        with torch.inference_mode():
            self.server.take()

    def wait(self, needed: dict[int, int], update: int, seconds: float) -> None:
        """Until each original row shows the wanted number of tokens, or time is up.

        What is shown counts once update number `update` is acknowledged; before, it may be a draft
        that the update throws away. In line, this is when drafting happens.
        """
        with torch.inference_mode():
            while not self.shows(needed, update) and not self.server.is_idle:
                self.server.step()

    def overlap(self) -> None:
        """A target forward begins: workers that run beside it need not be told.

        In line, draft as far as a worker beside it would, so that tests see the same course.
        """
        with torch.inference_mode():
            while not self.server.is_idle:
                self.server.step()

    def shows(self, needed: dict[int, int], update: int) -> bool:
        """Returns whether that is on the board by now."""
        return self.board.acknowledged >= update and all(
            int(self.board.lengths[row]) >= count for row, count in needed.items()
        )

    def close(self, seconds: float) -> str | None:
        """Stop working; nothing is left behind.

        Args:
            seconds: that it gets to stop before it is made to.

        Returns:
            What could not be ended, in a line; `None` where all is over.
        """
        return None


class _ConcurrentWorker(Worker):
    """What workers share that run beside the decoder."""

    wakeup: ParentEnd | ThreadWakeup

    def _notify(self) -> None:
        try:
            self.wakeup.notify()
        except OSError:
            self.failure = self._last_words()

    def _last_words(self) -> str:
        raise NotImplementedError

    def wait(self, needed: dict[int, int], update: int, seconds: float) -> None:
        """Look at the board until it shows what is wanted, time is up, or the worker is gone."""
        deadline = time.perf_counter() + seconds
        while not self.shows(needed, update):
            if time.perf_counter() > deadline or not self.is_usable:
                return
            time.sleep(NAP)

    def overlap(self) -> None:
        """It runs beside the target by itself."""

    def _stop(self) -> None:
        self.mail.stop()
        with contextlib.suppress(OSError):
            self.wakeup.notify()


class ThreadWorker(_ConcurrentWorker):
    """Runs in a thread: shares the process's cores, or runs on a CUDA stream of its own."""

    wakeup: ThreadWakeup

    def _launch(self) -> None:
        from .side_stream import SideStream  # of threads alone

        job = self.server.job
        self.wakeup = ThreadWakeup()
        self.stream = SideStream(job.adapter.device, job.inputs.values())
        self.thread = threading.Thread(target=self._serve, name="sooner-draft", daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        try:
            with self.stream():
                self.server.serve(self.wakeup)
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"

    def close(self, seconds: float) -> str | None:
        """Ask the thread to end. One in the midst of a forward can't be made to, so it is given up:
        nothing is asked of it any more, and it ends behind that forward."""
        self._stop()
        self.thread.join(seconds)
        if not self.thread.is_alive():
            return None
        self.failure = (
            f"the draft worker's thread did not end within {seconds:.1f} s; it ends behind the "
            "forward that it is in, and uses its cores or device until then"
        )
        return self.failure


class ProcessWorker(_ConcurrentWorker):
    """Runs in a forked process with one thread of its own: cores of its own, no interpreter lock
    shared.

    The child inherits models and inputs, so nothing is copied or sent. It ends when it is told to,
    when its parent's end of the socket closes, or, at the latest, when it finds its parent gone.
    """

    wakeup: ParentEnd

    def _launch(self) -> None:
        self.process, self.wakeup = fork(self.server.serve)

    @property
    def is_usable(self) -> bool:
        if self.failure is None and not self.process.is_alive():
            self.failure = self._last_words()
        return self.failure is None

    def _last_words(self) -> str:
        words = self.wakeup.last_words()
        # Its socket closes a moment before the system can tell how it ended.
        self.process.join(REAPED_WITHIN)
        return words or f"worker process ended with exit code {self.process.exitcode}"

    def close(self, seconds: float) -> str | None:
        self._stop()
        self.process.join(seconds)
        end(self.process, self.wakeup)
        return None


class AbsentWorker(_ConcurrentWorker):
    """Stands where no worker can be: it drafts nothing, and says why.

    Args:
        rows: original rows.
        failure: in a line.
    """

    def __init__(self, rows: int, failure: str) -> None:
        self.board, self.mail = Board(rows, 0, 0, 0), Mailbox(rows, 0, 0)
        self.failure = failure


def fork(serve: Callable[[Wakeup], None]) -> tuple[Any, ParentEnd]:
    """Serve in a child process.

    Returns:
        The process, and the end that wakes it.

    Raises:
        SoonerError: CUDA is at work here, which a forked process does not survive.
    """
    if torch.cuda.is_initialized():
        raise SoonerError(
            "a draft can't be forked from a process that uses CUDA; use placement='spawn' or "
            "'thread'"
        )
    ours, child_end = socket_ends()
    return _launch("fork", (serve, child_end, ours, os.getpid())), ours


def spawn(serve: Callable[[Wakeup], None]) -> tuple[Any, ParentEnd]:
    """Serve in a process that inherits nothing; `serve` is pickled.

    Ctrl-C is the parent's to handle from the beginning on: the process inherits that it is blocked.

    Returns:
        The process, and the end that wakes it.
    """
    ours, child_end = socket_ends()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return _launch("spawn", (serve, child_end, None, os.getpid())), ours
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _launch(
    how: str, arguments: tuple[Callable[[Wakeup], None], ChildEnd, ParentEnd | None, int]
) -> Any:
    context: Any = multiprocessing.get_context(how)
    process = context.Process(target=_live_as_child, args=arguments, daemon=True)
    process.start()
    arguments[1].close()
    return process


def end(process: Any, wakeup: ParentEnd) -> None:
    """See a process off, by force if it is still there."""
    wakeup.close()
    if process.is_alive():
        process.kill()
    process.join()
    process.close()


def _live_as_child(
    serve: Callable[[Wakeup], None], child_end: ChildEnd, parents_end: ParentEnd | None, parent: int
) -> NoReturn:
    """Serve in a child process until that is over or the parent is gone, then end.

    Ctrl-C is the parent's to handle; an error travels to it as this process's last words.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if parents_end is not None:
        parents_end.close()  # or the socket would never report that the parent is gone
    torch.set_num_threads(DRAFT_THREADS)
    threading.Thread(target=_follow_parent, args=(parent,), daemon=True).start()
    try:
        serve(child_end)
    except (EOFError, OSError):
        pass
    except BaseException as error:
        child_end.send(f"{type(error).__name__}: {error}")
    os._exit(0)  # no exit handler of the parent's may run here


def _follow_parent(parent: int) -> None:
    """End with the parent, even if it was killed while other children held its socket open."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


PLACEMENTS: dict[str, type[Worker]] = {
    "process": ProcessWorker,
    "spawn": ProcessWorker,
    "thread": ThreadWorker,
    "inline": Worker,
}


def can_fork(device: torch.device) -> bool:
    """Returns whether a draft on a device can work in a forked process of this one."""
    return device.type == "cpu" and hasattr(os, "fork") and not torch.cuda.is_initialized()


def default_placement(device: torch.device) -> str:
    """Returns the placement that `auto` is for a draft on a device.

    On a CPU it is a process of its own, if there is a core for it: forked, or spawned where this
    process uses CUDA. On CUDA it is a thread.
    """
    if device.type != "cpu" or not hasattr(os, "fork") or cores() < 2:
        return "thread"
    return "process" if can_fork(device) else "spawn"


def place(placement: str, device: torch.device) -> type[Worker]:
    """Returns the worker class of a placement, see `default_placement` for `auto`.

    Raises:
        SoonerError: a forked process can't use CUDA, nor be forked from one that does.
    """
    if placement == "auto":
        placement = default_placement(device)
    if placement == "process" and not can_fork(device):
        what = "a process that uses CUDA" if device.type == "cpu" else f"a draft on {device}"
        raise SoonerError(
            f"placement='process' forks, which {what} does not survive; use 'spawn' or 'thread'"
        )
    return PLACEMENTS[placement]


def spawns(placement: str, draft_device: str | None, device: torch.device | str | None) -> bool:
    """Returns whether a draft works in a spawned process: where that is asked for, and by `auto` if
    it has a device of its own that is no CPU, or if it can't be forked for CUDA.

    Args:
        draft_device: device that the draft has for itself; `None`: it has none.
        device: of the draft in this process; `None`: nobody knows yet.
    """
    if placement != "auto" or device is None:
        return placement == "spawn"
    if draft_device is not None and {
        torch.device(draft_device).type,
        torch.device(device).type,
    } != {"cpu"}:
        return True
    return default_placement(torch.device(device)) == "spawn"


@dataclass(frozen=True)
class BoardSizes:
    """How large board and mailbox of a job are; see there."""

    rows: int
    positions: int
    ring: int
    vocab: int
    visual: int

    @classmethod
    def of(cls, job: DraftJob, rows: int) -> BoardSizes:
        """Returns the sizes of a job over `rows` rows.

        Of the draft's distributions as many are kept as it may be ahead: those of tokens that the
        decoder may still verify. At a vocabulary of 152,000 each of them takes 0.6 MB.
        """
        ahead = job.max_ahead + 2
        vocab = job.vocab if job.processing.do_sample else 0
        visual = max((len(ids) for ids in job.prompt_ids), default=0)
        return cls(rows, job.limit + ahead, ahead, vocab, visual)

    @property
    def room(self) -> int:
        """Bytes of an arena that both take."""
        return Board.room(self.rows, self.positions, self.ring, self.vocab) + Mailbox.room(
            self.rows, self.positions, self.visual
        )

    def lay_out(self, arena: Arena) -> tuple[Board, Mailbox]:
        """Both at the next pieces of an arena, holding what it holds."""
        board = Board(self.rows, self.positions, self.ring, self.vocab, arena)
        return board, Mailbox(self.rows, self.positions, self.visual, arena)


def launch(kind: type[Worker], job: DraftJob, rows: Sequence[int]) -> Worker:
    """Start a worker for a run over `rows`."""
    sizes = BoardSizes.of(job, len(rows))
    board, mail = sizes.lay_out(Arena(sizes.room))
    mail.clear()
    return kind(job, board, mail)
