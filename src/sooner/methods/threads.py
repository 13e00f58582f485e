"""One rule for threads: the draft process has a core of its own, the target all the others."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from ..checks import check_whole

DRAFT_THREADS = 1
"""Threads of a forked draft process: it has none of OpenMP's threads, and a draft is small."""


@dataclass(frozen=True)
class Threads:
    """Holds torch threads of a run on CPUs.

    Attributes:
        target: of the process that runs the target.
        draft: of the process that drafts beside it; 0 where none does.
    """

    target: int
    draft: int = 0

    @classmethod
    def plan(
        cls, requested: int | None = None, *, is_miniature: bool = False, processes: int = 0
    ) -> Threads:
        """Returns the threads of a command or a bench.

        A draft process that shares a core with the target's threads makes all of them wait for it
        at every barrier. A miniature gets one: its matrices are so small that its threads mostly
        wait for each other.

        Args:
            requested: `--threads`: so many for the target, whatever else runs.
            is_miniature: the target is one of the bundled models.
            processes: processes that work beside the target, such as a draft's.

        Raises:
            SoonerError: fewer than one thread is asked for.
        """
        if requested is not None:
            check_whole("threads", requested)
        free = min(torch.get_num_threads(), max(cores() - processes, 1))
        target = requested or (1 if is_miniature else free)
        return cls(target, DRAFT_THREADS if processes else 0)

    def apply(self) -> Threads:
        """Set torch's threads in this process."""
        torch.set_num_threads(self.target)
        return self


def cores() -> int:
    """Returns cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
