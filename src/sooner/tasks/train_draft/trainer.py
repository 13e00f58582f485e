"""What trainings of every kind of draft share: steps, measurements, saved states, resuming."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from torch import nn

from ...errors import SoonerError
from ...io import replacing
from ...methods.eagle.target_print import check_target
from ...models import adapt
from .dataset import DataSet, Order
from .log import ProgressLine, TrainingLog, describe
from .settings import Recipe

Place = tuple[DataSet, int]
"""A recording, and the number of a sample in it."""


class Measurement(Protocol):
    """Counts acceptance by depth, added up over batches."""

    def add(self, head: Any, adapter: Any, batch: Any) -> None:
        """Draft for one more batch."""

    def as_dict(self) -> dict[str, Any]:
        """Returns plain data."""


class Trainer(ABC):
    """Runs one training. All that changes is in `state_dict`: order and noise follow from the step.

    Where `accelerate launch` has begun several processes, one for each GPU, they share each batch.

    Args:
        model: the target.
        data: its recordings.
        out: gets `state.pt`, `log.jsonl` and the folder `head`.
        settings: the recipe.

    Attributes:
        head: what learns, on the target's device.
        samples, holdout: what is learnt, and what is kept for measuring: recordings and places.
        step, seconds: taken so far.
        acceptance: of the last measurement.

    Raises:
        SoonerError: a recording of another target or of other states, or too small; a batch that
            the processes can't share.
    """

    head: Any
    settings: Any
    measured = 256
    """Most held-out samples that a measurement looks at."""

    def __init__(self, model: Any, data: Sequence[DataSet], out: Path, settings: Recipe) -> None:
        adapter = self.adapter = adapt(model)
        self.data, self.settings, self.out = data, settings, out
        for dataset in data:
            check_target(dataset.index["target"], adapter)
            self._check_layers(dataset)
        self.samples, self.holdout = self._split()
        with torch.random.fork_rng():  # modules draw first weights from the global generator
            torch.manual_seed(settings.seed)
            self.head = self.first_head().to(adapter.device)
        self.accelerator = Accelerator(cpu=adapter.device.type == "cpu")
        if settings.batch % self.accelerator.num_processes:
            raise SoonerError(
                f"{type(settings).__name__}: batch is {settings.batch}, which "
                f"{self.accelerator.num_processes} devices can't share; make it a multiple"
            )
        self.order = Order(len(self.samples), settings.batch, settings.seed)
        self.optimizer = torch.optim.AdamW(
            self.head.parameters(), lr=settings.lr, weight_decay=settings.weight_decay,
            betas=self.settings.betas,
        )  # fmt: skip
        self.step, self.seconds = 0, 0.0
        self.acceptance: dict[str, Any] = {}

    @abstractmethod
    def layers(self) -> tuple[int, ...]:
        """Returns the layers whose states the recordings must hold; none is the output alone."""

    @abstractmethod
    def first_head(self) -> nn.Module:
        """Returns a head with random weights."""

    @abstractmethod
    def loss(self) -> nn.Module:
        """Returns what maps a batch to its losses; `loss` among them is what is learnt from."""

    @abstractmethod
    def batch(self, where: Sequence[Place], step: int) -> Any:
        """Returns samples side by side."""

    @abstractmethod
    def losses(self, loss: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
        """Returns losses of the next step's batch."""

    @abstractmethod
    def measurement(self) -> Measurement:
        """Returns an empty one."""

    @abstractmethod
    def write_head(self, folder: Path, record: dict[str, Any]) -> None:
        """Write the head as it is used, with its provenance."""

    def _check_layers(self, data: DataSet) -> None:
        have, expected = data.index["options"].get("layers", "()"), self.layers()
        if have != repr(expected):
            raise SoonerError(
                f"recording '{data.folder}' keeps hidden_states {have}, format "
                f"'{self.settings.format}' learns from {expected}; record the data anew, into "
                "another folder"
            )

    def _split(self) -> tuple[list[Place], list[Place]]:
        """Returns what is learnt, and what is held out: the last samples of each recording, since
        neighbours may be alike.
        """
        learnt, holdout = list[Place](), list[Place]()
        for dataset in self.data:
            cut = len(dataset) - max(round(self.settings.holdout * len(dataset)), 1)
            learnt += [(dataset, index) for index in range(cut)]
            holdout += [(dataset, index) for index in range(max(cut, 0), len(dataset))]
        if not learnt:
            raise SoonerError(
                f"{len(holdout)} recorded samples are too few to train on and to hold some out; "
                "record more"
            )
        return learnt, holdout[:: max(-(-len(holdout) // self.measured), 1)]

    def holdout_batches(self) -> Iterator[Any]:
        """Yields samples that are kept for measuring."""
        size = self.settings.batch
        for start in range(0, len(self.holdout), size):
            yield self.batch(self.holdout[start : start + size], self.settings.steps)

    def run(self, log: TrainingLog, stop_after: int | None) -> Any:
        """Go on to the last step, or for `stop_after` steps, measuring and saving as the recipe
        says; returns the head.

        Raises:
            SoonerError: the folder can't be written.
        """
        last = self.settings.steps
        last = last if stop_after is None else min(last, self.step + stop_after)
        loss, optimizer = self.accelerator.prepare(self.loss(), self.optimizer)
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SoonerError(f"folder '{self.out}' can't be written: {error.strerror}") from error
        with ProgressLine(log.visible and self.accelerator.is_main_process) as line:
            while self.step < last:
                self._report(self._train_step(loss, optimizer), log, line)
        self.acceptance = self.measure()
        self.save()
        return self.head.eval()

    def _train_step(self, loss: nn.Module, optimizer: Any) -> dict[str, Any]:
        """Returns one optimiser step."""
        begun, rate = time.perf_counter(), self.settings.rate(self.step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        self.head.train()
        share = slice(self.accelerator.process_index, None, self.accelerator.num_processes)
        batch = self.batch([self.samples[n] for n in self.order.at(self.step)[share]], self.step)
        parts = self.losses(loss, batch)
        optimizer.zero_grad(set_to_none=True)
        self.accelerator.backward(parts["loss"])
        nn.utils.clip_grad_norm_(self.head.parameters(), self.settings.clip)
        optimizer.step()
        self.step += 1
        values = {name: float(value.detach()) for name, value in parts.items()}
        self.seconds += time.perf_counter() - begun
        return {**values, "lr": rate}

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """Returns acceptance by depth on held-out samples."""
        self.head.eval()
        results = self.measurement()
        for batch in self.holdout_batches():
            results.add(self.head, self.adapter, batch)
        return results.as_dict()

    def _report(self, parts: dict[str, Any], log: TrainingLog, line: ProgressLine) -> None:
        entry: dict[str, Any] = {
            "step": self.step,
            "steps": self.settings.steps,
            "seconds": round(self.seconds, 1),
            **parts,
        }
        if self.step % self.settings.check_every == 0:
            entry["check"] = self.acceptance = self.measure()
        if self.accelerator.is_main_process:
            log.tell(entry, line)
        if self.step % self.settings.save_every == 0:
            self.save()

    def save(self) -> None:
        """Write the state and the head, each whole or not at all."""
        self.accelerator.wait_for_everyone()
        if not self.accelerator.is_main_process:
            return
        record = describe(self.data, self.settings, self.seconds, self.acceptance)
        self.write_head(self.out / "head", {**record, "step": self.step})
        with replacing(self.out / "state.pt") as part:
            torch.save(self.state_dict(), part)

    def state_dict(self) -> dict[str, Any]:
        """Returns all that a resumed run needs."""
        return {
            "settings": self.settings.as_dict(),
            "data": self._digests(),
            "step": self.step,
            "seconds": self.seconds,
            "head": self.head.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def resume(self) -> bool:
        """Load `state.pt`, if there is one.

        Raises:
            SoonerError: it is of another recipe or other data.
        """
        path = self.out / "state.pt"
        if not path.is_file():
            return False
        state = torch.load(path, weights_only=True, map_location=self.adapter.device)
        now = {"settings": self.settings.as_dict(), "data": self._digests()}
        for name, value in now.items():
            if state[name] != value:
                raise SoonerError(
                    f"'{path}' was trained with other {name}; train with those, into another "
                    "folder, or with resume=False (--fresh)"
                )
        self.head.load_state_dict(state["head"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.seconds = state["step"], state["seconds"]
        return True

    def _digests(self) -> list[str]:
        return [dataset.digest for dataset in self.data]
