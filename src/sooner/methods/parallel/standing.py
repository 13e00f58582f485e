"""A draft process that outlives runs."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.reduction import ForkingPickler
from pickle import PicklingError
from typing import Any

from ...errors import SoonerError
from ...models import adapt
from .arena import Arena, Parcel
from .board import Board
from .server import DraftServer, Job
from .worker import GRACE, ProcessWorker, board_sizes, live_as_child

logger = logging.getLogger("sooner")

SMALLEST = 1 << 26
"""Bytes of an arena at least; pages that nobody writes cost nothing."""
DONE = "done"


@dataclass
class Forked:
    """A process, the parent's end of its pipe, and the memory that both see."""

    process: Any
    orders: Any
    arena: Arena


class StandingDraft:
    """Keeps one draft process for all runs of `ParallelVLM` (on CPUs).

    A process that is forked for every run costs the run twice: the fork itself, and a page fault
    for every page that the parent writes for the first time while the child lives. Together that
    was a fifth of the time to the first token of the bundled miniature. This process is forked at
    the first run; later runs only hand it their prompt. It holds the draft as it was then: weights
    that change afterwards change nothing in it, and with it only how many drafts are right.

    Ends with `close`, as a context manager, when it is collected, or with its parent.

    Args:
        draft: a loaded HF model of one of the supported families, on a CPU.

    Raises:
        SoonerError: the draft is not on a CPU, or this system can't fork.
    """

    def __init__(self, draft: Any) -> None:
        self.draft = draft
        self.adapter = adapt(draft)
        device = self.adapter.device
        if device.type != "cpu" or not hasattr(os, "fork"):
            raise SoonerError(
                f"StandingDraft forks, which a draft on {device} does not survive; leave it out"
            )
        self.held: list[Forked] = []  # one, or none; a list so that the finalizer sees it
        self._busy = threading.Lock()
        self._finalizer = weakref.finalize(self, _end, self.held)

    def __enter__(self) -> StandingDraft:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; a later run starts another."""
        _end(self.held)

    def worker(self, job: Job, rows: Sequence[int]) -> StandingWorker | None:
        """A worker for one run, or `None` where the run has to fork its own: while another run is
        on, or where the job can't travel (a logits processor that can't be pickled)."""
        if not self._busy.acquire(blocking=False):
            return None
        try:
            worker = self._hand_over(job, board_sizes(job, len(rows)))
        except BaseException:
            self.release(is_whole=False)
            raise
        if worker is None:
            self.release(is_whole=True)
        return worker

    def _hand_over(self, job: Job, sizes: tuple[int, int, int, int]) -> StandingWorker | None:
        parcel = Parcel.of(job.inputs)
        try:
            message = ForkingPickler.dumps((replace(job, adapter=None, inputs=parcel), sizes))
        except (PicklingError, AttributeError, TypeError) as error:  # pickle raises any of these
            logger.info("this run forks a draft process of its own: %s", error)
            return None
        forked = self._process(Board.room(*sizes) + parcel.room)
        forked.arena.reset()
        board = Board(*sizes, arena=forked.arena)
        board.clear()
        for name, piece in parcel.open(forked.arena).items():
            if name in parcel.shapes:
                piece.copy_(job.inputs[name])
        # One that died since it was looked at is found gone by the run, as in its midst.
        with contextlib.suppress(BrokenPipeError):
            forked.orders.send_bytes(message)
        return StandingWorker(self, forked, board)

    def _process(self, room: int) -> Forked:
        """The process, started anew if it is gone or its memory too small."""
        if self.held and (not self.held[0].process.is_alive() or self.held[0].arena.size < room):
            self.close()
        if not self.held:
            arena = Arena(max(SMALLEST, 1 << (2 * room - 1).bit_length()))
            context = multiprocessing.get_context("fork")
            orders, theirs = context.Pipe()
            arguments = (self.adapter, arena, theirs, orders, os.getpid())
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self.held.append(Forked(process, orders, arena))
        return self.held[0]

    def release(self, is_whole: bool) -> None:
        """A run is over; a process that did not say so itself is ended."""
        if not is_whole:
            self.close()
        self._busy.release()


class StandingWorker(ProcessWorker):
    """One run of a standing draft."""

    def __init__(self, standing: StandingDraft, forked: Forked, board: Board) -> None:
        self.standing = standing
        self.board = board
        self.failure: str | None = None
        self.process, self.orders = forked.process, forked.orders

    def close(self) -> None:
        """Wait until the process is done with the run, for its memory serves the next."""
        is_whole = False
        with contextlib.suppress(OSError, EOFError):
            self.orders.send(("stop",))
            is_whole = self.orders.poll(GRACE) and self.orders.recv() == DONE
        self.standing.release(is_whole)


def _end(held: list[Forked]) -> None:
    while held:
        forked = held.pop()
        forked.orders.close()  # which the process takes for its end, once it has nothing to do
        forked.process.join(0.05)
        if forked.process.is_alive():
            forked.process.kill()
            forked.process.join()
        forked.process.close()


def _serve(adapter: Any, arena: Arena, orders: Any, parents_end: Any, parent: int) -> None:
    """Body of the process: run after run."""
    live_as_child(partial(_runs, adapter, arena, orders), orders, parents_end, parent)


def _runs(adapter: Any, arena: Arena, orders: Any) -> None:
    while True:
        job, sizes = orders.recv()
        arena.reset()
        board = Board(*sizes, arena=arena)
        inputs = job.inputs.open(arena)
        DraftServer(replace(job, adapter=adapter, inputs=inputs), board).serve(orders)
        orders.send(DONE)
