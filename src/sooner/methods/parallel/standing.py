"""A draft process that outlives runs."""

from __future__ import annotations

import logging
import os
import pickle
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...errors import SoonerError
from ...models import adapt
from .mailbox import Mailbox
from .server import DraftJob, DraftServer
from .shared_memory import Arena, Board, Parcel, Shape, room
from .wakeup import ParentEnd, Wakeup
from .worker import NAP, BoardSizes, ProcessWorker, end, fork

logger = logging.getLogger("sooner")

SMALLEST = 1 << 26
"""Bytes of an arena at least; pages that nobody writes cost nothing."""
HEADER: Shape = ((3,), torch.long)
"""The first piece of an arena: number of the newest run, of the last one that is over, and bytes of
the newest run's job."""
RUN, OVER, BYTES = range(3)


@dataclass
class Forked:
    """A process, the end that wakes it, the memory that both see, and the head of that memory."""

    process: Any
    wakeup: ParentEnd
    arena: Arena
    header: Tensor


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

    def worker(self, job: DraftJob, rows: Sequence[int]) -> StandingWorker | None:
        """A worker for one run, or `None` where the run has to fork its own: while another run is
        on, or where the job can't travel (a logits processor that can't be pickled)."""
        if not self._busy.acquire(blocking=False):
            return None
        try:
            worker = self._hand_over(job, BoardSizes.of(job, len(rows)))
        except BaseException:
            self.release(is_whole=False)
            raise
        if worker is None:
            self.release(is_whole=True)
        return worker

    def _hand_over(self, job: DraftJob, sizes: BoardSizes) -> StandingWorker | None:
        parcel = Parcel.of(job.inputs)
        try:
            text = pickle.dumps((replace(job, adapter=None, inputs=parcel), sizes))
        except (pickle.PicklingError, AttributeError, TypeError) as error:  # any of these
            logger.info("this run forks a draft process of its own: %s", error)
            return None
        message = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        told = tuple(message.shape), message.dtype
        forked = self._process(room(*HEADER) + room(*told) + sizes.room + parcel.room)
        arena, header = forked.arena, forked.header
        arena.reset()
        arena.take(*HEADER)
        arena.take(*told).copy_(message)
        board, mail = sizes.lay_out(arena)
        board.clear()
        mail.clear()
        for name, piece in parcel.open(arena).items():
            if name in parcel.shapes:
                piece.copy_(job.inputs[name])
        header[BYTES] = len(message)
        header[RUN] += 1  # from here on the process may begin
        return StandingWorker(self, forked, board, mail)

    def _process(self, needed: int) -> Forked:
        """The process, started anew if it is gone or its memory too small."""
        if self.held and (not self.held[0].process.is_alive() or self.held[0].arena.size < needed):
            self.close()
        if not self.held:
            arena = Arena(max(SMALLEST, 1 << (2 * needed - 1).bit_length()))
            header = arena.take(*HEADER)
            process, wakeup = fork(partial(_runs, self.adapter, arena, header))
            self.held.append(Forked(process, wakeup, arena, header))
        return self.held[0]

    def release(self, is_whole: bool) -> None:
        """A run is over; a process that did not say so itself is ended."""
        if not is_whole:
            self.close()
        self._busy.release()


class StandingWorker(ProcessWorker):
    """One run of a standing draft."""

    def __init__(
        self, standing: StandingDraft, forked: Forked, board: Board, mail: Mailbox
    ) -> None:
        self.standing, self.header = standing, forked.header
        self.board, self.mail = board, mail
        self.failure: str | None = None
        self.process, self.wakeup = forked.process, forked.wakeup
        self._notify()  # one that died since it was looked at is found gone here

    def close(self, seconds: float) -> str | None:
        """Wait until the process is done with the run, for its memory serves the next."""
        self._stop()
        deadline = time.perf_counter() + seconds
        while not self._is_over and self.is_usable and time.perf_counter() < deadline:
            time.sleep(NAP)
        self.standing.release(self._is_over)
        return None

    @property
    def _is_over(self) -> bool:
        return bool(self.header[OVER] == self.header[RUN])


def _end(held: list[Forked]) -> None:
    while held:
        forked = held.pop()
        end(forked.process, forked.wakeup)


def _runs(adapter: Any, arena: Arena, header: Tensor, wakeup: Wakeup) -> None:
    """Body of the process: run after run."""
    while True:
        while header[RUN] == header[OVER]:
            wakeup.wait()
        run = int(header[RUN])
        arena.reset()
        arena.take(*HEADER)
        message = arena.take((int(header[BYTES]),), torch.uint8)
        job, sizes = pickle.loads(message.numpy().tobytes())
        board, mail = sizes.lay_out(arena)
        inputs = job.inputs.open(arena)
        DraftServer(replace(job, adapter=adapter, inputs=inputs), board, mail).serve(wakeup)
        header[OVER] = run
