"""The draft worker: a draft server at work beside the decoder, in a process or on a side stream."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing import connection
from typing import Any, Literal, NoReturn, Self

import torch
from torch import Tensor

from ...errors import SoonerError
from ..threads import DRAFT_THREADS, cores
from .board import Board, DraftJob
from .server import LONGEST, DraftServer

NAP = 2e-5
"""Seconds between two looks at the board; a draft forward takes many of these."""
PATIENCE, FIRST, IN_VAIN = 8.0, 0.05, 1.5
"""A worker is waited for no more after so many draft forwards' worth of waiting without a sign of
life, each thought to take `FIRST` seconds before one was timed, and `IN_VAIN` seconds at least."""
REAPED_WITHIN = 1.0
"""Seconds in which the system tells how a process ended whose socket is closed."""

Serve = Callable[[socket.socket], None]
"""The body of a worker, which is given the worker's end of a pair of sockets."""


class Worker:
    """A process or thread that drafts beside the decoder, and the decoder's end of its sockets.

    Nothing that the decoder reports waits for it. All waits of a run, that for its end included,
    share one budget, which any sign of life renews. `runner` is a thread, or a process of
    `multiprocessing`, that is not started yet; `end` and `peer` are sockets, the decoder's and its.
    """

    board: Board  # of the newest run
    opening: float  # seconds that it gets before its first sign of life: it has a prompt to read

    def __init__(self, runner: Any, end: socket.socket, peer: socket.socket) -> None:
        self.runner, self._socket, self._parent = runner, end, os.getpid()
        self.is_process = not isinstance(runner, threading.Thread)
        self.failure: str | None = None  # why it can't be used any more in this run
        end.setblocking(False)
        runner.start()
        if self.is_process:
            peer.close()

    @classmethod
    def in_process(cls, method: Literal["fork", "spawn"], serve: Serve) -> Worker:
        """Starts a process. A forked one inherits models and inputs; a spawned one inherits
        nothing, and `serve` is pickled. Both inherit that Ctrl-C is blocked.

        Raises:
            SoonerError: CUDA is at work here, which a forked process does not survive.
        """
        if method == "fork" and torch.cuda.is_initialized():
            raise SoonerError(
                "a draft can't be forked from a process that uses CUDA; use placement='spawn' or "
                "'thread'"
            )
        end, peer = socket.socketpair()
        context: Any = multiprocessing.get_context(method)
        arguments = serve, peer, os.getpid()
        process = context.Process(target=_live_as_child, args=arguments, daemon=True)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return cls(process, end, peer)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    @classmethod
    def in_thread(cls, adapter: Any, job: DraftJob) -> Worker:
        """Starts a thread for one run: it shares the process's cores, or has a CUDA stream.

        Copies to a device are queued on the stream of the thread that asks for them. The worker's
        stream waits for them, or it would read memory that is not written yet; and the allocator
        must know that the inputs are in use there, or it would hand their memory out too early.
        """
        server, device = DraftServer(adapter, job), adapter.device
        stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            stream = torch.cuda.Stream(device)
            stream.wait_stream(torch.cuda.current_stream(device))
            for tensor in server.inputs.values():
                if isinstance(tensor, Tensor) and tensor.device.type == "cuda":
                    tensor.record_stream(stream)
        end, peer = socket.socketpair()
        arguments = server.serve, peer, stream
        thread = threading.Thread(target=_live, args=arguments, name="sooner-draft", daemon=True)
        return cls(thread, end, peer).begin(server.board)

    def begin(self, board: Board) -> Self:
        """Begins a run."""
        self.board, self.failure = board, None
        self.opening, self._spent, self._signs = 0.0, 0.0, (0, 0)
        return self

    @property
    def is_usable(self) -> bool:
        """Whether it still drafts."""
        if self.failure is None and not self.runner.is_alive():
            self.failure = self.last_words()
        return self.failure is None

    def notify(self, *descriptors: int) -> None:
        """Wakes the worker, and hands it files; where the socket is full it will wake anyway. A
        worker that is gone ignores it."""
        if self.failure is not None:
            return
        try:
            if descriptors:
                socket.send_fds(self._socket, [b"\0"], descriptors)
            else:
                self._socket.send(b"\0")
        except BlockingIOError:
            pass
        except OSError:
            self.failure = self.last_words()

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
        end = f"ended with exit code {self.runner.exitcode}" if self.is_process else "ended"
        return words or f"the draft worker {'hangs' if self.runner.is_alive() else end}"

    def patience(self, forward: float) -> float:
        """Returns seconds that it is waited for yet, 0 until it moves again, where a draft forward
        takes `forward` seconds; 0: that is not known yet."""
        signs = int(self.board.forwards), int(self.board.acknowledged)
        if signs != self._signs:
            self._signs, self._spent = signs, 0.0
        opening = 0.0 if any(signs) else self.opening
        return max(max(IN_VAIN, PATIENCE * (forward or FIRST), opening) - self._spent, 0.0)

    def wait(self, needed: Mapping[int, int], update: int, forwards: int, forward: float) -> None:
        """Waits until each original row has so many tokens behind `update`, which may throw a draft
        away, as long as so many forwards may take, and no longer than `patience`."""

        def is_there() -> bool:
            return int(self.board.acknowledged) >= update and all(
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

    def finish(self, forward: float) -> str | None:
        """Ends the run, for which the worker gets its `patience`, and a thread with it; returns
        what could not be ended, in a line."""
        seconds = self.patience(forward)
        self.board.stopped.fill_(1)
        self.notify()
        if self.is_process:
            self._nap(lambda: bool(self.board.over), seconds)
            return None
        self.runner.join(seconds)
        self.end()
        if not self.runner.is_alive():
            return None
        self.failure = (
            f"the draft worker's thread did not end within {seconds:.1f} s; it ends behind the "
            "forward that it is in, and uses its cores or device until then"
        )
        return self.failure

    def end(self) -> None:
        """Ends it, a process by force if it is still there; a thread ends behind its forward."""
        self._socket.close()
        if self.is_process and self._parent == os.getpid():  # no fork of this process ends it
            self.runner.kill()
            self.runner.join()
            self.runner.close()


def _live(serve: Serve, peer: socket.socket, stream: torch.cuda.Stream | None = None) -> None:
    """Serves until that is over; an error travels to the decoder as the worker's last words."""
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


def _live_as_child(serve: Serve, peer: socket.socket, parent: int) -> NoReturn:
    """Body of a process, which ends with its parent. Ctrl-C is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # starting a resource tracker may unblock it
    torch.set_num_threads(DRAFT_THREADS)
    threading.Thread(target=_follow_parent, args=(parent,), daemon=True).start()
    _live(serve, peer)
    os._exit(0)  # no exit handler of the parent's may run here


def _follow_parent(parent: int) -> None:
    """Ends with the parent: a socket that children inherit does not report that it is gone."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def place(placement: str, device: torch.device | str, draft_device: str | None = None) -> str:
    """Returns where a draft works that is on `device` here, or has a device for itself, by a
    `placement` of `ParallelVLM`: in a forked `process`, in one to `spawn`, or in a `thread`."""
    if placement != "auto":
        return placement
    device = torch.device(device)
    if draft_device is not None and {torch.device(draft_device).type, device.type} != {"cpu"}:
        return "spawn"
    if device.type != "cpu" or not hasattr(os, "fork") or cores() < 2:
        return "thread"
    return "spawn" if torch.cuda.is_initialized() else "process"
