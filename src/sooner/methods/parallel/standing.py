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
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ...errors import SoonerError
from ...models import adapt
from .mailbox import Mailbox
from .server import DraftJob, DraftServer
from .shared_memory import Arena, Board, Parcel, Shape, room
from .wakeup import ParentEnd, Wakeup
from .worker import NAP, BoardSizes, ProcessWorker, Worker, end, fork

logger = logging.getLogger("sooner")

SMALLEST = 1 << 26
"""Bytes of an arena at least; pages that nobody writes cost nothing."""
HEADER: Shape = ((5,), torch.long)
"""The first piece of an arena: number of the newest run, of the last one that is over, bytes of the
newest run's job and of the arena it is in, and whether the process has its draft."""
RUN, OVER, BYTES, SIZE, READY = range(5)


@dataclass
class DraftProcess:
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

    is_spawned: ClassVar[bool] = False

    def __init__(self, draft: Any) -> None:
        self.draft, self.adapter = draft, adapt(draft)
        self._check_device(self.adapter.device)
        self.processes: list[
            DraftProcess
        ] = []  # one, or none; a list so that the finalizer sees it
        self._busy = threading.Lock()
        self._finalizer = weakref.finalize(self, _end, self.processes)

    def _check_device(self, device: torch.device) -> None:
        if device.type != "cpu" or not hasattr(os, "fork"):
            raise SoonerError(
                f"StandingDraft forks, which a draft on {device} does not survive; use SpawnedDraft"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; a later run starts another."""
        _end(self.processes)

    def worker(self, job: DraftJob, rows: Sequence[int]) -> Worker | None:
        """Returns a worker for one run, or `None` where the run has to fork its own: while another
        run is on, or where the job can't travel (a logits processor that can't be pickled).
        """
        if not self._busy.acquire(blocking=False):
            return self._decline(rows, "another run has it")
        try:
            worker = self._hand_over(job, rows)
        except BaseException:
            self.release(is_whole=False)
            raise
        if not isinstance(worker, StandingWorker):
            self.release(is_whole=True)
        return worker

    def _decline(self, rows: Sequence[int], why: str) -> Worker | None:
        logger.info("this run forks a draft process of its own: %s", why)
        return None

    def _hand_over(self, job: DraftJob, rows: Sequence[int]) -> Worker | None:
        sizes = BoardSizes.of(job, len(rows))
        try:
            parcel = Parcel((replace(job, adapter=None), sizes))
        except (pickle.PicklingError, AttributeError, TypeError) as error:  # any of these
            return self._decline(rows, str(error))
        process = self._process(room(*HEADER) + parcel.room + sizes.room)
        arena, header = process.arena, process.header
        arena.reset()
        arena.take(*HEADER)
        header[BYTES] = parcel.lay_down(arena)
        board, mail = sizes.lay_out(arena)
        board.clear()
        mail.clear()
        header[RUN] += 1  # from here on the process may begin
        return StandingWorker(self, process, board, mail)

    def _process(self, needed: int) -> DraftProcess:
        """The process, started anew if it is gone or its memory too small."""
        if self.processes and not (self.processes[0].process.is_alive() and self._fits(needed)):
            self.close()
        if not self.processes:
            self._start(size_for(needed))
        return self.processes[0]

    def _fits(self, needed: int) -> bool:
        """Returns whether the memory is large enough."""
        return self.processes[0].arena.size >= needed

    def _start(self, size: int) -> None:
        """Start the process, with an arena of `size` bytes."""
        arena = Arena(size)
        header = arena.take(*HEADER)
        process, wakeup = fork(partial(serve_runs, self.adapter, arena, header))
        self.processes.append(DraftProcess(process, wakeup, arena, header))

    def release(self, is_whole: bool) -> None:
        """A run is over; a process that did not say so itself is ended."""
        if not is_whole:
            self.close()
        self._busy.release()


class StandingWorker(ProcessWorker):
    """Holds one run of a standing draft."""

    def __init__(
        self, standing: StandingDraft, forked: DraftProcess, board: Board, mail: Mailbox
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


def size_for(needed: int) -> int:
    """Returns bytes of an arena for jobs like one that takes `needed`."""
    return max(SMALLEST, 1 << (2 * needed - 1).bit_length())


def _end(active: list[DraftProcess]) -> None:
    while active:
        process = active.pop()
        end(process.process, process.wakeup)


def serve_runs(adapter: Any, arena: Arena, header: Tensor, wakeup: Wakeup) -> None:
    """Serves run after run: the body of the process.

    Args:
        adapter: the draft's; tensors of a job go to its device.
        arena: as large as it was at the beginning.
        header: its first piece.
    """
    while True:
        while header[RUN] == header[OVER]:
            wakeup.wait()
        run = int(header[RUN])
        arena = arena.reaching(int(header[SIZE]))
        arena.reset()
        arena.take(*HEADER)
        job, sizes = Parcel.open(arena, int(header[BYTES]), adapter.device)
        board, mail = sizes.lay_out(arena)
        DraftServer(replace(job, adapter=adapter), board, mail).serve(wakeup)
        header[OVER] = run
