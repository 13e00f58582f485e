"""A draft process that outlives runs: forked, or spawned for a device of its own."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from socket import socket
from typing import Any

import torch
import transformers

from ...engine.runner import ModelRunner
from ...errors import SoonerError
from ...models import adapt
from ...models.silent import as_run
from .board import Board, DraftJob, WorkerError, nameless_file, pack, unpack
from .server import DraftServer, receive
from .worker import Worker

READY = "ready"
"""What a spawned process sends once it has its draft."""
LOADING = 900.0
"""Seconds that a process gets to load its draft."""
HANGING = 30.0
"""Seconds that a spawned process may take to end a run whose decoding is over, before it is
replaced: to load the draft again takes longer."""
WORDS = 16
"""Tokens of the prompt that warms a draft up."""


def loader(model: Any) -> Callable[[torch.device], Any]:
    """Returns what loads the same model in another process, on a device.

    A model itself is not pickled: transformers hangs local functions on those that have run. Its
    class, its config and its weights travel. Where weights are elsewhere (on the `meta` device), or
    quantised, they are loaded from the checkpoint.

    Raises:
        SoonerError: it has no weights, here or in a checkpoint.
    """
    quantizer, weights = getattr(model, "hf_quantizer", None), model.state_dict()
    options = {"dtype": model.dtype, "attn_implementation": model.config._attn_implementation}
    if quantizer is None and not any(weight.is_meta for weight in weights.values()):
        options |= {"config": model.config, "state_dict": weights}
        return partial(_load, type(model), None, options, False)
    checkpoint = getattr(model, "name_or_path", "")
    if not checkpoint:
        raise SoonerError("the draft has no weights, here or in a checkpoint; load it")
    if (revision := getattr(model.config, "_commit_hash", None)) is not None:
        options["revision"] = revision
    if quantizer is not None and not quantizer.pre_quantized:
        options["quantization_config"] = quantizer.quantization_config
    return partial(_load, type(model), checkpoint, options, quantizer is not None)


def _load(
    kind: Any, checkpoint: str | None, options: dict[str, Any], is_quantized: bool,
    device: torch.device,
) -> Any:  # fmt: skip
    if is_quantized:  # such weights can't be moved to another device
        options = {**options, "device_map": {"": device}}
    model = kind.from_pretrained(checkpoint, **options)
    if checkpoint is not None:
        model = as_run(model, checkpoint)
    return (model if is_quantized else model.to(device)).eval()


class StandingDraft(contextlib.AbstractContextManager["StandingDraft"]):
    """Keeps one draft process for all runs of `ParallelVLM`.

    The process starts with the first run, since a fork for every run took a fifth of the time to
    the first token of the bundled miniature. It holds the draft as it was then: weights that change
    afterwards change nothing in it, and with it only how many drafts are right.

    A draft on a CPU is forked. One with a device of its own is spawned: the process imports torch
    and gets the draft's weights, which takes seconds, or loads its checkpoint where it is on the
    `meta` device or quantised. A script that spawns keeps its own work behind `if __name__ ==
    "__main__":`, as multiprocessing asks.

    Ends with `close`, as a context manager, when it is collected, or with its parent.

    Args:
        draft: a loaded HF model of one of the supported families.
        device: where a spawned process holds it; by default its own.
        spawn: spawn the process; so is a draft with a `device`.

    Attributes:
        failure: why a spawned draft could not be loaded, so that runs go on without it.

    Raises:
        SoonerError: a draft on no CPU, which can't be forked; a device that is not there.
    """

    def __init__(
        self, draft: Any, device: torch.device | str | None = None, spawn: bool = False
    ) -> None:
        self.draft, self.adapter = draft, adapt(draft)
        self.is_spawned = spawn or device is not None
        if os.name != "posix":
            raise SoonerError(f"no process can stand on '{os.name}'; use placement='thread'")
        self.device = self.adapter.device
        if self.is_spawned:
            self.device = draft_device(self.device if device is None else device)
            loader(draft)  # it has weights somewhere
        elif self.device.type != "cpu":
            raise SoonerError(
                f"a forked process does not survive a draft on {self.device}; use "
                "placement='spawn' or 'thread', or StandingDraft(draft, spawn=True)"
            )
        self.patience = HANGING if self.is_spawned else 0.0
        self.failure: str | None = None
        self.workers: list[Worker] = []  # one, or none; a list so that the finalizer sees it
        self._ended = 0.0  # when the newest run of this process did
        self._busy = threading.Lock()
        self._finalizer = weakref.finalize(self, _end, self.workers)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; a later run starts another."""
        self.failure, self._ended = None, 0.0
        _end(self.workers)

    def start(self) -> str | None:
        """Start the process now, so that the first run needs not; waits for a run that has it.
        Returns why that failed, in a line; `None` where it is ready."""
        with self._busy, contextlib.suppress(WorkerError):
            self._process()
        return self.failure

    def worker(self, job: DraftJob) -> Worker:
        """Returns the process at work for one run.

        Raises:
            WorkerError: another run is on, the job can't travel (a logits processor that can't be
                pickled), or the draft could not be loaded.
        """
        if not self._busy.acquire(blocking=False):
            raise WorkerError("another run has its process")
        try:
            if self._is_late():
                raise WorkerError("its process is not done with an earlier run")
            with nameless_file() as packed, nameless_file() as memory:
                pack(job, packed)
                worker = self._process().begin(Board(job, memory.fileno()))
                worker.notify(packed.fileno(), memory.fileno())
        except BaseException:
            self._busy.release()
            raise
        return worker

    def release(self) -> None:
        """Ends a run."""
        self._ended = time.monotonic() if self.workers else 0.0
        self._is_late()
        self._busy.release()

    def _is_late(self) -> bool:
        """Returns whether the process is in an earlier run yet; one that hangs there is ended."""
        if not self.workers or not self._ended or self.workers[0].board.over:
            return False
        if self.workers[0].runner.is_alive() and time.monotonic() - self._ended < self.patience:
            return True
        self.close()
        return False

    def _process(self) -> Worker:
        """Returns the process, started anew if it is gone, or raises `WorkerError`."""
        if self.workers and not self.workers[0].runner.is_alive():
            self.close()
        if self.failure is not None:
            raise WorkerError(self.failure)
        if not self.workers:
            try:
                self._start()
            except BaseException as error:
                self.close()
                if isinstance(error, WorkerError):
                    self.failure = str(error)
                raise
        return self.workers[0]

    def _start(self) -> None:
        """Starts the process, and waits until a spawned one has the draft."""
        if not self.is_spawned:
            self.workers.append(Worker.in_process("fork", partial(serve_runs, self.adapter)))
            return
        with nameless_file() as packed:
            pack(loader(self.draft), packed)
            worker = Worker.in_process("spawn", partial(load_and_serve, self.device))
            self.workers.append(worker)
            worker.notify(packed.fileno())
            words = worker.message(LOADING)
        if not words:
            guard = 'a script needs `if __name__ == "__main__":` around what it runs'
            words = f"{worker.last_words()} within {LOADING:.0f} s; {guard}"
        if words != READY:
            raise WorkerError(f"the draft can't be loaded: {' '.join(words.split())}")


def _end(workers: list[Worker]) -> None:
    while workers:
        workers.pop().end()


def serve_runs(adapter: Any, peer: socket) -> None:
    """Serves run after run, whose job and memory `peer` brings: the body of the process."""
    while True:
        if not (descriptors := receive(peer)):
            continue
        job: DraftJob = unpack(descriptors[0])
        server = DraftServer(adapter, job, descriptors[1])
        for descriptor in descriptors:
            os.close(descriptor)
        server.serve(peer)


def load_and_serve(device: torch.device, peer: socket) -> None:
    """Loads the draft that `peer` brings, then serves runs: the body of a spawned process."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if device.type == "cuda":
        torch.cuda.set_device(device)  # or torch would open a context on the target's, too
    (descriptor,) = receive(peer)
    adapter = adapt(unpack(descriptor)(device))
    os.close(descriptor)
    warm_up(adapter)
    peer.send(READY.encode())
    serve_runs(adapter, peer)


@torch.inference_mode()
def warm_up(adapter: Any) -> None:
    """Run a prompt of a few words, and a step behind it: on CUDA the first ones take seconds."""
    word = next(token for token in range(adapter.vocab_size) if token not in adapter.visual_ids)
    words = torch.full((1, WORDS), word, device=adapter.device)
    runner = ModelRunner(adapter, 2 * WORDS)
    runner.prefill(adapter.embed_prompt({"input_ids": words}))
    runner.forward_chain(words[:, :1]).logits.argmax(-1).tolist()  # waits for the device


def draft_device(name: torch.device | str) -> torch.device:
    """Returns the device of a name.

    Raises:
        SoonerError: it is none, or not there, or holds no weights.
    """
    count = torch.cuda.device_count()
    with contextlib.suppress(RuntimeError):
        device = torch.device(name)
        if device.type != "meta" and (device.type != "cuda" or (device.index or 0) < count):
            return device
    raise SoonerError(
        f"a draft can't be on '{name}'; give a draft_device that is there, such as cpu or cuda:0 "
        f"(torch sees {count} CUDA devices)"
    )
