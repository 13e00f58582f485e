"""What trainings of every kind of draft share: steps, measurements, saved states, resuming."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from rich.progress import Progress
from torch import nn

from ... import __version__
from ...errors import SoonerError
from ...io import replacing
from ...methods.target_print import check_target
from ...models import adapt
from ...provenance import revision
from .dataset import DataSet, Order, TrainingSample
from .settings import Recipe

Place = tuple[DataSet, int]
"""A recording, and the number of a sample in it."""


EVERY = 20
"""Steps between two lines of `log.jsonl`."""

OnStep = Callable[[dict[str, Any]], None]


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
    def batch(self, samples: Sequence[TrainingSample], step: int) -> Any:
        """Returns samples side by side; `step` is that of the recipe's end for measuring."""

    @abstractmethod
    def hits(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns which greedy drafts of each length begin in a batch, and which of them the target
        would accept as a whole, `[..., depth]` bool.
        """

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
            yield self._batch(self.holdout[start : start + size], self.settings.steps)

    def _batch(self, places: Sequence[Place], step: int) -> Any:
        return self.batch([data[index] for data, index in places], step)

    def run(self, progress: bool, on_step: OnStep | None, stop_after: int | None) -> Any:
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
        is_main = self.accelerator.is_main_process
        with Progress(disable=not (progress and is_main)) as bar:
            task = bar.add_task("", total=self.settings.steps)
            while self.step < last:
                entry = self._train_step(loss, optimizer)
                text = f"loss {entry['loss']:.3g}"
                bar.update(task, completed=self.step, description=text)
                self._report(entry, on_step if is_main else None)
        self.acceptance = self.measure()
        self.save()
        return self.head.eval()

    def _train_step(self, loss: nn.Module, optimizer: Any) -> dict[str, Any]:
        """Returns what is logged of one optimiser step."""
        begun, rate = time.perf_counter(), self.settings.rate(self.step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        self.head.train()
        share = slice(self.accelerator.process_index, None, self.accelerator.num_processes)
        places = [self.samples[number] for number in self.order.at(self.step)[share]]
        parts = loss(self._batch(places, self.step))
        optimizer.zero_grad(set_to_none=True)
        self.accelerator.backward(parts["loss"])
        nn.utils.clip_grad_norm_(self.head.parameters(), self.settings.clip)
        optimizer.step()
        self.step += 1
        values = {name: float(value.detach()) for name, value in parts.items()}
        self.seconds += time.perf_counter() - begun
        seconds = round(self.seconds, 1)
        return {"step": self.step, "seconds": seconds, **values, "lr": rate}

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """Returns the share of held-out drafts whose first `d` tokens are all accepted, wherever in
        an answer they begin, for each depth `d`: `chain`.
        """
        self.head.eval()
        counts = [
            torch.stack([part.flatten(0, -2).sum(0).cpu() for part in self.hits(batch)])
            for batch in self.holdout_batches()
        ]
        begun, holding = torch.stack(counts).sum(0)
        return {"chain": [round(share, 4) for share in (holding / begun.clamp(min=1)).tolist()]}

    def _report(self, entry: dict[str, Any], on_step: OnStep | None) -> None:
        """Measure and save where it is time to, and pass on what a step gave."""
        if self.step % self.settings.check_every == 0:
            entry["check"] = self.acceptance = self.measure()
        if on_step is not None:
            on_step(entry)
        if self.accelerator.is_main_process and (self.step % EVERY == 0 or "check" in entry):
            with (self.out / "log.jsonl").open("a") as file:
                file.write(json.dumps(entry) + "\n")
        if self.step % self.settings.save_every == 0:
            self.save()

    def save(self) -> None:
        """Write the state and the head, each whole or not at all."""
        self.accelerator.wait_for_everyone()
        if not self.accelerator.is_main_process:
            return
        tree = revision()
        versions = {name: str(metadata.version(name)) for name in ("torch", "transformers")}
        record = {
            "settings": self.settings.as_dict(),
            "data": [{"samples": len(data), "sha256": data.digest} for data in self.data],
            "seconds": round(self.seconds, 1),
            "acceptance": self.acceptance,
            "git": tree.commit and tree.commit[:8] + "+" * tree.is_dirty,
            "versions": {"sooner": __version__, **versions},
            "threads": torch.get_num_threads(),
            "step": self.step,
        }
        self.write_head(self.out / "head", record)
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
