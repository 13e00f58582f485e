"""A draft process that is spawned, not forked: it loads the draft, on a device of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import transformers

from ...engine.runner import ModelRunner
from ...errors import SoonerError
from ...models import adapt
from .draft_source import DraftSource, HandedOver
from .server import DraftJob
from .shared_memory import Arena, SharedFile, room
from .standing import (
    HEADER,
    OVER,
    READY,
    RUN,
    SIZE,
    DraftProcess,
    StandingDraft,
    serve_runs,
    size_for,
)
from .wakeup import ParentEnd, Wakeup
from .worker import AbsentWorker, Worker, spawn

LOADING = 900.0
"""Seconds that a process gets to load its draft."""
HANGING = 30.0
"""Seconds that a process may take to end a run whose decoding is over, before it is replaced."""
LOOK = 0.005
"""Seconds between two looks at a process that loads."""
WORDS = 16
"""Tokens of the prompt that warms a draft up."""


class NotLoadedError(SoonerError):
    """A process could not load its draft; says why."""


class SpawnedDraft(StandingDraft):
    """Keeps one spawned draft process for all runs of `ParallelVLM`, on a device of its own.

    The process imports torch and loads the draft anew, which takes seconds: at `start`, else in the
    first run. A draft from a checkpoint is loaded from there, as it was loaded here; weights of any
    other are handed over. A script that spawns keeps its own work behind
    `if __name__ == "__main__":`, as multiprocessing asks.

    Ends with `close`, as a context manager, when it is collected, or with its parent.

    Args:
        draft: a loaded HF model of one of the supported families; from a checkpoint it may be on
            the `meta` device, without weights.
        device: where the process holds it; by default its own.
        from_memory: hand its weights over even if they came from a checkpoint, because they were
            changed since.

    Attributes:
        failure: why the draft could not be loaded; runs go on without it then.

    Raises:
        SoonerError: a device that is not there, a system without POSIX's file descriptors.
    """

    is_spawned = True

    def __init__(
        self, draft: Any, device: torch.device | str | None = None, from_memory: bool = False
    ) -> None:
        self.source = None if from_memory else DraftSource.of(draft)
        super().__init__(draft)
        self.device = draft_device(self.adapter.device if device is None else device)
        self.failure: str | None = None
        self._left = 0.0  # when the last run was over

    def _check_device(self, device: torch.device) -> None:
        if os.name != "posix":
            raise SoonerError(f"a draft can't be spawned on '{os.name}'; use placement='thread'")
        if device.type == "meta" and self.source is None:
            raise SoonerError("the draft has no weights, here or in a checkpoint; load it")

    def start(self) -> str | None:
        """Load the draft now, so that the first run needs not.

        Returns:
            Why that failed, in a line; `None` where it is ready, or at work.

        Raises:
            SoonerError: the draft can't be handed over.
        """
        if self.failure is None and self._busy.acquire(blocking=False):
            try:
                self._process(room(*HEADER))
            except NotLoadedError as error:
                self.failure = str(error)
            finally:
                self._busy.release()
        return self.failure

    def close(self) -> None:
        """End the process; a later run starts another."""
        super().close()
        self.failure = None

    def worker(self, job: DraftJob, rows: Sequence[int]) -> Worker:
        """Returns a worker for one run; one that does nothing while another run is on, where the
        draft was not loaded, or where the job can't travel.
        """
        if self.failure is None:
            try:
                worker = super().worker(job, rows)
                assert worker is not None
                return worker
            except NotLoadedError as error:
                self.failure = str(error)
        return AbsentWorker(len(rows), self.failure)

    def release(self, is_whole: bool) -> None:
        """A run is over. A process that did not say so may do it later: to load the draft again
        takes longer."""
        self._left = time.monotonic()
        if self.processes and not self.processes[0].process.is_alive():
            self.close()
        self._busy.release()

    def _hand_over(self, job: DraftJob, rows: Sequence[int]) -> Worker | None:
        if self._lags():
            return self._decline(rows, "it is not done with an earlier run")
        return super()._hand_over(job, rows)

    def _lags(self) -> bool:
        """Returns whether the process is in an earlier run yet; one that hangs there is ended."""
        if not self.processes or self.processes[0].header[OVER] == self.processes[0].header[RUN]:
            return False
        if self.processes[0].process.is_alive() and time.monotonic() - self._left < HANGING:
            return True
        self.close()
        return False

    def _decline(self, rows: Sequence[int], why: str) -> Worker:
        return AbsentWorker(len(rows), f"its process can't take this run: {why}")

    def _fits(self, needed: int) -> bool:
        """Always: the memory grows, since another process would have to load the draft again."""
        process = self.processes[0]
        if process.arena.size < needed:
            process.arena = process.arena.reaching(size_for(needed))
            process.header[SIZE] = process.arena.size
        return True

    def _start(self, size: int) -> None:
        file = SharedFile()
        arena = Arena(size, file)
        header = arena.take(*HEADER)
        source = self.source or HandedOver.of(self.draft)
        serve = partial(load_and_serve, source, self.device, file, size)
        process = DraftProcess(*spawn(serve), arena, header)
        self.processes.append(process)
        try:
            self._wait(process)
        except BaseException:
            self.close()
            raise

    def _wait(self, process: DraftProcess) -> None:
        deadline = time.monotonic() + LOADING
        while not process.header[READY]:
            if not process.process.is_alive():
                raise NotLoadedError(_why_it_ended(process.process, process.wakeup))
            if time.monotonic() > deadline:
                raise NotLoadedError(f"the draft was not loaded within {LOADING:.0f} s")
            time.sleep(LOOK)


def _why_it_ended(process: Any, wakeup: ParentEnd) -> str:
    words = " ".join(wakeup.last_words().removeprefix(f"{NotLoadedError.__name__}: ").split())
    if words:
        return f"the draft can't be loaded: {words}"
    return (
        f"the draft process ended with exit code {process.exitcode} while it loaded; a script that "
        'spawns needs `if __name__ == "__main__":` around what it runs'
    )


def load_and_serve(
    source: DraftSource | HandedOver,
    device: torch.device,
    file: SharedFile,
    size: int,
    wakeup: Wakeup,
) -> None:
    """Loads the draft, then serves runs: the body of the process.

    Args:
        source: of the draft.
        device: where it is wanted.
        file, size: of the arena.

    Raises:
        NotLoadedError: the draft can't be loaded.
    """
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if device.type == "cuda":
        torch.cuda.set_device(device)  # or torch would open a context on the target's, too
    arena = Arena(size, file)
    header = arena.take(*HEADER)
    try:
        adapter = adapt(source.load(device))
        warm_up(adapter)
    except Exception as error:
        raise NotLoadedError(f"{type(error).__name__}: {error}") from error
    header[READY] = 1
    serve_runs(adapter, arena, header, wakeup)


@torch.inference_mode()
def warm_up(adapter: Any) -> None:
    """Run a prompt of a few words, and a step behind it: on CUDA the first ones take seconds."""
    ids = [token for token in range(64) if token not in adapter.visual_ids][:WORDS]
    words = torch.tensor([ids], device=adapter.device) % adapter.vocab_size
    runner = ModelRunner(adapter, 2 * WORDS)
    runner.prefill(adapter.embed_prompt({"input_ids": words}))
    runner.forward_chain(words[:, :1]).logits.argmax(-1).tolist()  # waits for the device


def draft_device(name: torch.device | str) -> torch.device:
    """Returns the device of a name.

    Raises:
        SoonerError: no device that holds weights, or a CUDA device that is not there.
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        raise SoonerError(
            f"draft_device is '{name}'; give a torch device, such as cpu or cuda:1"
        ) from None
    if device.type == "meta":
        raise SoonerError("the draft has no weights here; give draft_device, where it is loaded to")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise SoonerError(
            f"draft_device '{name}' is not there: torch sees {torch.cuda.device_count()} CUDA "
            "devices"
        )
    return device
