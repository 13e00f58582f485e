"""The draft worker: a draft server at work beside the decoder, in a process or on a side stream."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from multiprocessing import connection
from typing import Any, Literal, NoReturn

import torch
from torch import Tensor

from ...errors import SoonerError
from ..threads import DRAFT_THREADS, cores
from .board import Board
from .server import DraftJob, DraftServer

NAP = 2e-5
"""Seconds between two looks at the board; a draft forward takes many of these."""
PATIENCE, FIRST, IN_VAIN = 8.0, 0.05, 1.5
"""A worker is waited for no more after so many draft forwards' worth of waiting without a sign of
life, each thought to take `FIRST` seconds before one was timed, and `IN_VAIN` seconds at least."""
REAPED_WITHIN = 1.0
"""Seconds in which the system tells how a process ended whose socket is closed."""
LONGEST = 1 << 16
"""Bytes of a worker's last words at most."""
PLACEMENTS = ("process", "spawn", "thread")

Serve = Callable[[socket.socket], None]
"""The body of a task, which is given the worker's end of a pair of sockets."""


def receive(peer: socket.socket) -> list[int]:
    """Waits for a wake-up; returns the descriptors that came with it, mostly none.

    Raises:
        EOFError: the decoder closed its end, or is gone.
    """
    data, descriptors, _, _ = socket.recv_fds(peer, LONGEST, 2)
    if not data:
        raise EOFError
    return descriptors


class Task:
    """A process or thread that serves the decoder, and the decoder's end of the sockets.

    Args:
        runner: a thread, or a process of `multiprocessing`, not started yet.
        end: the decoder's end.
        peer: the worker's end.
    """

    def __init__(self, runner: Any, end: socket.socket, peer: socket.socket) -> None:
        self.runner, self._socket = runner, end
        end.setblocking(False)
        runner.start()
        if self.is_process:
            peer.close()

    @property
    def is_process(self) -> bool:
        return not isinstance(self.runner, threading.Thread)

    @property
    def is_alive(self) -> bool:
        return bool(self.runner.is_alive())

    def notify(self, *descriptors: int) -> None:
        """Wakes the worker; where the socket is full it will wake anyway.

        Raises:
            OSError: the worker is gone, or the socket too full for `descriptors`.
        """
        if descriptors:
            socket.send_fds(self._socket, [b"\0"], descriptors)
            return
        with contextlib.suppress(BlockingIOError):
            self._socket.send(b"\0")

    def message(self, seconds: float = 0.0) -> str:
        """Returns what the worker sent within some seconds; nothing if it has not, or could not."""
        with contextlib.suppress(OSError, ValueError):  # the second of a closed socket
            if connection.wait([self._socket], seconds):
                return self._socket.recv(LONGEST).decode(errors="replace")
        return ""

    def last_words(self) -> str:
        """Returns why it ended."""
        words = self.message()
        self.runner.join(REAPED_WITHIN)  # a socket closes before the system tells how it ended
        code = f" with exit code {self.runner.exitcode}" if self.is_process else ""
        return words or f"the draft worker ended{code}"

    def end(self) -> None:
        """Ends it, a process by force if it is still there; a thread ends behind its forward."""
        self._socket.close()
        if self.is_process:
            self.runner.kill()
            self.runner.join()
            self.runner.close()


def check_fork() -> None:
    """Require that this process may be forked.

    Raises:
        SoonerError: CUDA is at work here, which a forked process does not survive.
    """
    if torch.cuda.is_initialized():
        raise SoonerError(
            "a draft can't be forked from a process that uses CUDA; use placement='spawn' or "
            "'thread'"
        )


def start_process(method: Literal["fork", "spawn"], serve: Serve) -> Task:
    """Serves in a process. A forked one inherits models and inputs; a spawned one inherits nothing,
    and `serve` is pickled. Both inherit that Ctrl-C is blocked.
    """
    if method == "fork":
        check_fork()
    end, peer = socket.socketpair()
    arguments = (serve, peer, end if method == "fork" else None, os.getpid())
    context: Any = multiprocessing.get_context(method)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return Task(context.Process(target=_live_as_child, args=arguments, daemon=True), end, peer)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def start_thread(serve: Serve, device: torch.device, inputs: Iterable[object] = ()) -> Task:
    """Serves in a thread: it shares the process's cores, or has a CUDA stream of its own.

    Copies to a device are queued on the stream of the thread that asks for them. The worker's
    stream waits for them, or it would read memory that is not written yet; and the allocator must
    know that the inputs are in use there, or it would hand their memory out again too early.

    Args:
        device: on anything but CUDA there are no streams.
        inputs: tensors that were queued; those elsewhere are left alone.
    """
    end, peer = socket.socketpair()
    stream: torch.cuda.Stream | None = None
    if device.type == "cuda":
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        for tensor in inputs:
            if isinstance(tensor, Tensor) and tensor.device.type == "cuda":
                tensor.record_stream(stream)
    body = partial(_live, serve, peer, stream)
    return Task(threading.Thread(target=body, name="sooner-draft", daemon=True), end, peer)


def _live(serve: Serve, peer: socket.socket, stream: torch.cuda.Stream | None = None) -> None:
    """Serves until that is over; an error travels to the decoder as the task's last words."""
    try:
        with torch.cuda.stream(stream) if stream is not None else contextlib.nullcontext():
            serve(peer)
    except (EOFError, ConnectionError):
        pass
    except Exception as error:
        with contextlib.suppress(OSError):
            words = f"{type(error).__name__}: {error}".encode()
            peer.send(words[:LONGEST], socket.MSG_DONTWAIT)
    finally:
        peer.close()


def _live_as_child(
    serve: Serve, peer: socket.socket, parents_end: socket.socket | None, parent: int
) -> NoReturn:
    """Body of a process, which ends with its parent. Ctrl-C is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # starting a resource tracker may unblock it
    if parents_end is not None:
        parents_end.close()  # or the socket would never report that the parent is gone
    torch.set_num_threads(DRAFT_THREADS)
    threading.Thread(target=_follow_parent, args=(parent,), daemon=True).start()
    _live(serve, peer)
    os._exit(0)  # no exit handler of the parent's may run here


def _follow_parent(parent: int) -> None:
    """Ends with the parent, even if it was killed while other children held its socket open."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


class Worker:
    """Runs a draft beside the decoder for one run. Nothing that the decoder reports waits for it.

    All waits of a run, that for its end included, share one budget, which any sign of life renews.

    Args:
        board: what both share.
        task: where it works.
        release: called when the run is over, if the task outlives it; `None` ends the thread.
        failure: why it can't be used, if no task is there.

    Attributes:
        failure: why it can't be used any more, or `None`.
        opening: seconds that it gets before its first sign of life, for it has a prompt to read.
    """

    def __init__(
        self,
        board: Board,
        task: Task | None,
        release: Callable[[], None] | None = None,
        failure: str | None = None,
    ) -> None:
        self.board, self.task, self.failure = board, task, failure
        self._release = release
        self.opening, self._spent = 0.0, 0.0
        self._signs = 0, 0, 0

    @classmethod
    def in_thread(cls, job: DraftJob, rows: int) -> Worker:
        """Starts a worker for one run over so many rows, in a thread."""
        board = job.board(rows)

        def serve(peer: socket.socket) -> None:
            DraftServer(job, board).serve(partial(receive, peer))

        return cls(board, start_thread(serve, job.adapter.device, job.inputs.values()))

    @property
    def is_usable(self) -> bool:
        """Whether it still drafts."""
        if self.failure is None and self.task is not None and not self.task.is_alive:
            self.failure = self.task.last_words()
        return self.failure is None

    def notify(self) -> None:
        """Lets it look at the board; ignored by a worker that is gone."""
        if self.failure is None and self.task is not None:
            try:
                self.task.notify()
            except OSError:
                self.failure = self.task.last_words()

    def patience(self, forward: float) -> float:
        """Returns seconds that it is waited for yet; 0 until it moves again.

        Args:
            forward: seconds of a draft forward; 0: not known yet.
        """
        if (signs := (*self.board.forwards(), self.board.acknowledged)) != self._signs:
            self._signs, self._spent = signs, 0.0
        opening = 0.0 if any(signs) else self.opening
        return max(max(IN_VAIN, PATIENCE * (forward or FIRST), opening) - self._spent, 0.0)

    def wait(self, needed: Mapping[int, int], update: int, forwards: int, forward: float) -> None:
        """Waits until each original row has so many tokens, which should take so many forwards; no
        longer than `patience`, nor than these may take.

        What is on the board counts once `update` is acknowledged; before, it may be a draft that
        the update throws away.
        """

        def is_there() -> bool:
            return self.board.acknowledged >= update and all(
                int(self.board.lengths[row]) >= count for row, count in needed.items()
            )

        longest = PATIENCE * (forward or FIRST) * forwards
        self._spent += self._nap(is_there, min(longest, self.patience(forward)))

    def _nap(self, is_done: Callable[[], bool], seconds: float) -> float:
        """Waits for a condition while the worker lives; returns the seconds, 0 where it came."""
        begin = time.perf_counter()
        while not is_done() and self.is_usable:
            if (waited := time.perf_counter() - begin) > seconds:
                return waited
            time.sleep(NAP)
        return 0.0

    def close(self, forward: float) -> str | None:
        """Ends the run: a thread, or a process that outlives it, gets its `patience` to do so.

        Returns:
            What could not be ended, in a line; `None` where all is over.
        """
        if self.task is None:
            return None
        seconds = self.patience(forward)
        self.board.stop()
        self.notify()
        if self._release is not None:
            self._nap(lambda: self.board.is_over, seconds)
            self._release()
            return None
        self.task.runner.join(seconds)
        self.task.end()
        if not self.task.is_alive:
            return None
        self.failure = (
            f"the draft worker's thread did not end within {seconds:.1f} s; it ends behind the "
            "forward that it is in, and uses its cores or device until then"
        )
        return self.failure


def place(placement: str, device: torch.device | str, draft_device: str | None = None) -> str:
    """Returns where a draft works: in a forked `process`, in one to `spawn`, or in a `thread`.

    By `auto`, a draft with a CUDA device of its own is spawned. On a CPU it has a process of its
    own, if there is a core for it: forked, or spawned where this process uses CUDA. Elsewhere it
    is a thread.

    Args:
        placement: a name, or `auto`.
        device: of the draft in this process.
        draft_device: that it has for itself; `None`: it has none.

    Raises:
        SoonerError: a forked process can't use CUDA, nor be forked from one that does.
    """
    device = torch.device(device)
    if placement == "auto":
        if draft_device is not None and {torch.device(draft_device).type, device.type} != {"cpu"}:
            return "spawn"
        if device.type != "cpu" or not hasattr(os, "fork") or cores() < 2:
            return "thread"
        return "spawn" if torch.cuda.is_initialized() else "process"
    if placement == "process":
        if device.type != "cpu":
            raise SoonerError(
                f"placement='process' forks, which a draft on {device} does not survive; use "
                "'spawn' or 'thread'"
            )
        check_fork()
    return placement
