"""Trains a drafter on recordings of its target: steps, measurements, saved states, resuming."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from rich.progress import Progress
from torch import nn

from ... import __version__
from ...errors import SoonerError, reason_of
from ...io import replacing
from ...methods.target_print import check_target
from ...models import adapt
from ...provenance import revision
from .blocks import BlockTask
from .dataset import DataSet, Place
from .heads import HeadTask
from .settings import BlockTraining, HeadTraining, Recipe

EVERY = 20
"""Steps between two lines of `log.jsonl`."""

OnStep = Callable[[dict[str, Any]], None]


def train(
    model: Any,
    data: DataSet | Path | str | Sequence[DataSet],
    out: Path | str,
    settings: Recipe | None = None,
    *,
    resume: bool = True,
    progress: bool = True,
    stop_after: int | None = None,
    on_step: OnStep | None = None,
) -> Any:
    """Train a head for a frozen target; the target is left as it was.

    Args:
        model: the target, a loaded HF model.
        data: its recording, or several.
        out: gets `state.pt`, `log.jsonl` and the folder `head`.
        settings: the recipe, of a head (`HeadTraining`) or of a DFlash drafter (`BlockTraining`).
        resume: go on from `state.pt`; the steps are then the same as without the interruption.
        progress: show a line.
        stop_after: leave after so many steps, with the state saved.
        on_step: told each step's losses, and the acceptance where it is measured.

    Returns:
        The head (`EagleHead`, `Eagle3Head`, `MtpHead` or `DFlashModel`), in eval mode, with its
        provenance.

    Raises:
        SoonerError: a recording of another target, or too small; a state of another recipe; a
            folder that can't be written.
    """
    if isinstance(data, Path | str):
        data = DataSet.open(data)
    recordings = [data] if isinstance(data, DataSet) else list(data)
    trainer = Trainer(model, recordings, Path(out), settings or HeadTraining())
    if resume:
        trainer.resume()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    was_training = model.training
    for weight in trained:
        weight.requires_grad_(False)
    model.eval()
    try:
        return trainer.run(progress, on_step, stop_after)
    finally:
        for weight in trained:
            weight.requires_grad_(True)
        model.train(was_training)


class Trainer:
    """Runs one training. All that changes is in `state.pt`; order and noise follow from the step.

    Where `accelerate launch` has begun several processes, one for each GPU, they share each batch.

    Args:
        model: the target.
        data: its recordings.
        out: gets `state.pt`, `log.jsonl` and the folder `head`.
        settings: the recipe.

    Attributes:
        task: what learns, on the target's device.
        samples, holdout: what is learnt, and what is kept for measuring: recordings and places.
        step, seconds: taken so far.
        acceptance: of the last measurement.

    Raises:
        SoonerError: a recording of another target or of other states, or too small; a batch that
            the processes can't share.
    """

    def __init__(self, model: Any, data: Sequence[DataSet], out: Path, settings: Any) -> None:
        adapter = self.adapter = adapt(model)
        self.data, self.settings, self.out = data, settings, out
        layers = settings.recorded_layers(adapter.layers)
        for dataset in data:
            check_target(dataset.index["target"], adapter)
            if (have := dataset.index["options"].get("layers", "()")) != repr(layers):
                raise SoonerError(
                    f"recording '{dataset.folder}' keeps hidden_states {have}, format "
                    f"'{settings.format}' learns from {layers}; record the data anew, into "
                    "another folder"
                )
        self.accelerator = Accelerator(cpu=adapter.device.type == "cpu")
        if settings.batch % self.accelerator.num_processes:
            raise SoonerError(
                f"{type(settings).__name__}: batch is {settings.batch}, which "
                f"{self.accelerator.num_processes} devices can't share; make it a multiple"
            )
        kind: Any = BlockTask if isinstance(settings, BlockTraining) else HeadTask
        self.samples, self.holdout = self._split(kind.measured)
        with torch.random.fork_rng():  # modules draw first weights from the global generator
            torch.manual_seed(settings.seed)
            self.head = kind.first_head(adapter, settings, self.samples).to(adapter.device)
        self.task: HeadTask | BlockTask = kind(self.head, adapter, settings)
        self.optimizer = torch.optim.AdamW(
            self.head.parameters(), lr=settings.lr, weight_decay=settings.weight_decay,
            betas=settings.betas,
        )  # fmt: skip
        self.step, self.seconds = 0, 0.0
        self.acceptance: dict[str, Any] = {}

    def _split(self, measured: int) -> tuple[list[Place], list[Place]]:
        """Returns what is learnt, and `measured` samples at most that are held out: the last ones
        of each recording, since neighbours may be alike.
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
        return learnt, holdout[:: max(-(-len(holdout) // measured), 1)]

    def _places(self, step: int) -> list[Place]:
        """Returns the samples of a step on this device: each once before any comes again.

        They follow from the seed and the step alone, so that a resumed run sees the same.
        """
        settings, worker, count = self.settings, self.accelerator, len(self.samples)
        first, end = step * settings.batch + worker.process_index, (step + 1) * settings.batch
        numbers = [divmod(n, count) for n in range(first, end, worker.num_processes)]
        return [self.samples[_order(settings.seed, epoch, count)[at]] for epoch, at in numbers]

    def _batch(self, places: Sequence[Place], step: int) -> Any:
        worker = step * self.accelerator.num_processes + self.accelerator.process_index
        return self.task.batch([data[index] for data, index in places], step, worker)

    def holdout_batches(self) -> Iterator[Any]:
        """Yields samples that are kept for measuring."""
        size = self.settings.batch
        for start in range(0, len(self.holdout), size):
            yield self._batch(self.holdout[start : start + size], self.settings.steps)

    def run(self, progress: bool, on_step: OnStep | None, stop_after: int | None) -> Any:
        """Go on to the last step, or for `stop_after` steps, measuring and saving as the recipe
        says; returns the head.

        Raises:
            SoonerError: the folder can't be written.
        """
        last = self.settings.steps
        last = last if stop_after is None else min(last, self.step + stop_after)
        loss, optimizer = self.accelerator.prepare(self.task, self.optimizer)
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = reason_of(error)
            raise SoonerError(f"folder '{self.out}' can't be written: {reason}") from error
        is_main = self.accelerator.is_main_process
        with Progress(disable=not (progress and is_main)) as bar:
            task = bar.add_task("", total=self.settings.steps)
            while self.step < last:
                entry = self._train_step(loss, optimizer)
                text = f"loss {entry['loss']:.3g}"
                bar.update(task, completed=self.step, description=text)
                self._report(entry, on_step if is_main else None)
        self.acceptance = self.measure()
        self.task.calibrate(self.holdout_batches())
        self.save()
        return self.head.eval()

    def _train_step(self, loss: nn.Module, optimizer: Any) -> dict[str, Any]:
        """Returns what is logged of one optimiser step."""
        begun, rate = time.perf_counter(), self.settings.rate(self.step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        self.head.train()
        parts = loss(self._batch(self._places(self.step), self.step))
        optimizer.zero_grad(set_to_none=True)
        self.accelerator.backward(parts["loss"])
        nn.utils.clip_grad_norm_(self.head.parameters(), self.settings.clip)
        optimizer.step()
        self.step += 1
        values = {name: float(value.detach()) for name, value in parts.items()}
        self.seconds += time.perf_counter() - begun
        return {"step": self.step, "seconds": round(self.seconds, 1), **values, "lr": rate}

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """Returns the share of held-out drafts whose first `d` tokens are all accepted, wherever in
        an answer they begin, for each depth `d`: `chain`.
        """
        self.head.eval()
        counts = [
            torch.stack([part.flatten(0, -2).sum(0).cpu() for part in self.task.hits(batch)])
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
        self.head.with_provenance(record, self.task.temperature).save_pretrained(self.out / "head")
        state = {
            **self._origin(),
            "step": self.step,
            "seconds": self.seconds,
            "head": self.head.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        with replacing(self.out / "state.pt") as part:
            torch.save(state, part)

    def _origin(self) -> dict[str, Any]:
        """Returns what a state was made from."""
        digests = [dataset.digest for dataset in self.data]
        return {"settings": self.settings.as_dict(), "data": digests}

    def resume(self) -> None:
        """Load `state.pt`, if there is one.

        Raises:
            SoonerError: it is of another recipe or other data.
        """
        path = self.out / "state.pt"
        if not path.is_file():
            return
        state = torch.load(path, weights_only=True, map_location=self.adapter.device)
        for name, value in self._origin().items():
            if state[name] != value:
                raise SoonerError(
                    f"'{path}' was trained with other {name}; train with those, into another "
                    "folder, or with resume=False (--fresh)"
                )
        self.head.load_state_dict(state["head"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.seconds = state["step"], state["seconds"]


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, samples: int) -> np.ndarray:
    """Returns the numbers of all samples as one epoch sees them."""
    return np.random.default_rng((seed, epoch)).permutation(samples)
