"""A draft process that outlives runs: forked, or spawned for a device of its own."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from socket import socket
from typing import Any, Self

import torch
import transformers

from ...engine.runner import ModelRunner
from ...errors import SoonerError
from ...models import adapt
from ...models.silent import as_run
from .board import Board, nameless_file, pack, unpack
from .server import DraftJob, DraftServer
from .worker import Task, Worker, receive, start_process

logger = logging.getLogger("sooner")

READY = "ready"
"""What a spawned process sends once it has its draft."""
LOADING = 900.0
"""Seconds that a process gets to load its draft."""
HANGING = 30.0
"""Seconds that a spawned process may take to end a run whose decoding is over, before it is
replaced: to load the draft again takes longer."""
WORDS = 16
"""Tokens of the prompt that warms a draft up."""
CANT_TRAVEL = (pickle.PicklingError, AttributeError, TypeError)
"""What pickling raises, any of these."""

Load = Callable[[torch.device], Any]
"""Returns a model, in eval mode, on a device."""


def loader(model: Any) -> Load:
    """Returns what loads the same model in another process.

    A model itself is not pickled: transformers hangs local functions on those that have run. Its
    class, its config and its weights travel. Where weights are elsewhere (on the `meta` device), or
    quantised, they are loaded from the checkpoint.

    Raises:
        SoonerError: it has no weights, here or in a checkpoint.
    """
    kind, tensors, quantizer = type(model), _tensors(model), getattr(model, "hf_quantizer", None)
    if quantizer is None and not any(tensor.is_meta for tensor in tensors.values()):
        weights = {name: tensor.detach() for name, tensor in tensors.items()}
        generation_config = getattr(model, "generation_config", None)
        return partial(_load_weights, kind, model.config, generation_config, weights)
    checkpoint = getattr(model, "name_or_path", "")
    if not checkpoint:
        raise SoonerError("the draft has no weights, here or in a checkpoint; load it")
    options = {"dtype": model.dtype, "attn_implementation": model.config._attn_implementation}
    if (revision := getattr(model.config, "_commit_hash", None)) is not None:
        options["revision"] = revision
    if quantizer is not None and not quantizer.pre_quantized:
        options["quantization_config"] = quantizer.quantization_config
    return partial(_load_checkpoint, kind, checkpoint, options, quantizer is not None)


def _load_checkpoint(
    kind: Any, checkpoint: str, options: dict[str, Any], is_quantized: bool, device: torch.device
) -> Any:
    if is_quantized:  # such weights can't be moved to another device
        options = {**options, "device_map": {"": device}}
    model = as_run(kind.from_pretrained(checkpoint, **options), checkpoint)
    return (model if is_quantized else model.to(device)).eval()


def _load_weights(
    kind: Any,
    config: Any,
    generation_config: Any,
    weights: dict[str, torch.Tensor],
    device: torch.device,
) -> Any:
    from transformers.initialization import no_init_weights

    with no_init_weights():
        model = kind(config)
    model.tie_weights()
    tensors = _tensors(model)
    shapes = {name: tensor.shape for name, tensor in weights.items()}
    if {name: tensor.shape for name, tensor in tensors.items()} != shapes:
        raise SoonerError(
            f"{kind.__name__} makes another model of the draft's config; save the draft to a "
            "folder, and load it by from_pretrained onto the meta device"
        )
    for name, tensor in tensors.items():
        tensor.data = weights[name]
    if generation_config is not None:
        model.generation_config = generation_config
    return model.to(device).eval()


def _tensors(model: Any) -> dict[str, torch.Tensor]:
    """Returns weights and buffers by name, stored ones and others."""
    return dict(model.named_parameters()) | dict(model.named_buffers())


class StandingDraft:
    """Keeps one draft process for all runs of `ParallelVLM`.

    This process starts with the first run; later runs only hand it their prompt. (To fork anew for
    every run, page faults included, took a fifth of the time to the first token of the bundled
    miniature.) It holds the draft as it was then: weights that change afterwards change nothing in
    it, and with it only how many drafts are right.

    A draft on a CPU is forked. One with a device of its own is spawned: the process imports torch
    and gets the draft's weights, which takes seconds. A draft on the `meta` device, without
    weights, and one that is quantised, is loaded from its checkpoint there. A script that spawns
    keeps its own work behind `if __name__ == "__main__":`, as multiprocessing asks.

    Ends with `close`, as a context manager, when it is collected, or with its parent.

    Args:
        draft: a loaded HF model of one of the supported families.
        device: where a spawned process holds it; by default its own.
        spawn: spawn the process; so is a draft with a `device`.

    Attributes:
        failure: why a spawned draft could not be loaded; runs go on without it then.

    Raises:
        SoonerError: a draft on no CPU, which can't be forked; a device that is not there; a system
            without POSIX's processes.
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
                f"StandingDraft forks, which a draft on {self.device} does not survive; use "
                "StandingDraft(draft, spawn=True)"
            )
        self.patience = HANGING if self.is_spawned else 0.0
        self.failure: str | None = None
        self.tasks: list[Task] = []  # one, or none; a list so that the finalizer sees it
        self._board: Board | None = None  # of the newest run
        self._ended = 0.0  # when that did
        self._busy = threading.Lock()
        self._finalizer = weakref.finalize(self, _end_tasks, self.tasks)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; a later run starts another."""
        self._board = self.failure = None
        _end_tasks(self.tasks)

    def start(self) -> str | None:
        """Start the process now, so that the first run needs not.

        Returns:
            Why that failed, in a line; `None` where it is ready, or at work.

        Raises:
            SoonerError: the draft can't be handed over.
        """
        if self._busy.acquire(blocking=False):
            try:
                self._task()
            finally:
                self._busy.release()
        return self.failure

    def worker(self, job: DraftJob, rows: int) -> Worker:
        """Returns a worker for one run. While another run is on, or where the job can't travel (a
        logits processor that can't be pickled), it is a thread; beside a spawned process, whose
        draft may have no weights here, it is one that drafts nothing and says why.
        """
        worker: Worker | str = "another run has it"
        if self._busy.acquire(blocking=False):
            try:
                worker = self._hand_over(job, rows)
            finally:
                if isinstance(worker, str):
                    self._busy.release()
        if isinstance(worker, Worker):
            return worker
        if self.is_spawned:
            why = self.failure or f"its process can't take this run: {worker}"
            return Worker(Board(rows, 0, 0, 0, 0), None, failure=why)
        logger.info("this run drafts in a thread of its own: %s", worker)
        return Worker.in_thread(job, rows)

    def _hand_over(self, job: DraftJob, rows: int) -> Worker | str:
        if self._is_late():
            return "it is not done with an earlier run"
        try:
            packed = pack((replace(job, adapter=None), rows))
        except CANT_TRAVEL as error:
            return str(error)
        memory = nameless_file()
        try:
            task = self._task()
            if isinstance(task, str):
                return task
            self._board = board = job.board(rows, memory)
            with contextlib.suppress(OSError):  # it died since; the run finds it gone
                task.notify(packed, memory)
        finally:
            os.close(packed)
            os.close(memory)
        return Worker(board, task, self._release)

    def _release(self) -> None:
        """A run is over."""
        self._ended = time.monotonic()
        self._is_late()
        self._busy.release()

    def _is_late(self) -> bool:
        """Returns whether the process is in an earlier run yet; one that hangs there is ended."""
        if not self.tasks or self._board is None or self._board.is_over:
            return False
        if self.tasks[0].is_alive and time.monotonic() - self._ended < self.patience:
            return True
        self.close()
        return False

    def _task(self) -> Task | str:
        """Returns the process, started anew if it is gone, or why it could not be started."""
        if self.tasks and not self.tasks[0].is_alive:
            self.close()
        if not self.tasks and self.failure is None:
            if self.is_spawned:
                self.failure = self._spawn()
            else:
                self.tasks.append(start_process("fork", partial(serve_runs, self.adapter)))
        return self.failure or self.tasks[0]

    def _spawn(self) -> str | None:
        """Starts a process and waits until it has the draft; returns why that failed."""
        try:
            packed = pack(loader(self.draft))
        except CANT_TRAVEL as error:
            raise SoonerError(
                f"the draft can't be handed to another process ({error}); load it from a folder by "
                "from_pretrained, or use placement='thread'"
            ) from error
        failure: str | None = "interrupted"
        try:
            self.tasks.append(start_process("spawn", partial(load_and_serve, self.device)))
            self.tasks[0].notify(packed)
            failure = _failure_to_load(self.tasks[0])
        finally:
            os.close(packed)
            if failure is not None:
                self.close()
        return failure


def _end_tasks(tasks: list[Task]) -> None:
    while tasks:
        tasks.pop().end()


def serve_runs(adapter: Any, peer: socket) -> None:
    """Serves run after run: the body of the process.

    Args:
        adapter: the draft's; tensors of a job go to its device.
        peer: what wakes it, and brings the memory of each run.
    """
    while True:
        descriptors = receive(peer)
        if not descriptors:
            continue
        job, rows = unpack(descriptors[0])
        board = job.board(rows, descriptors[1])
        for descriptor in descriptors:
            os.close(descriptor)
        DraftServer(job.on(adapter), board).serve(partial(receive, peer))


def _failure_to_load(task: Task) -> str | None:
    """Waits until a process has its draft; returns why it has not, in a line."""
    if (words := task.message(LOADING)) == READY:
        return None
    if words:
        return f"the draft can't be loaded: {' '.join(words.split())}"
    end = task.last_words()
    if task.is_alive:
        return f"the draft was not loaded within {LOADING:.0f} s"
    return (
        f'{end} while it loaded; a script that spawns needs `if __name__ == "__main__":` around '
        "what it runs"
    )


def load_and_serve(device: torch.device, peer: socket) -> None:
    """Loads the draft, then serves runs: the body of a spawned process.

    Args:
        device: where the draft is wanted.
        peer: what brings the draft, and then runs.
    """
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
