"""Trains a drafter on recordings of its target: steps, measurements, saved states, resuming."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import Progress
from torch import nn

from ...errors import SoonerError
from ...io import check_writable, replacing
from ...methods.target_print import check_target
from ...models import adapt
from ...provenance import revision, versions
from .blocks import BlockTask
from .heads import HeadTask
from .recording import DataSet
from .settings import BlockTraining, HeadTraining, Recipe

LOG = "log.jsonl"
EVERY = 20
"""Steps between two lines of the log."""

OnStep = Callable[[dict[str, Any]], None]


def train(
    model: Any, data: DataSet, out: Path | str, settings: Recipe | None = None, *,
    resume: bool = True, progress: bool = True, stop_after: int | None = None,
    on_step: OnStep | None = None,
) -> Any:  # fmt: skip
    """Train a head for a frozen target; the target is left as it was.

    Args:
        model: the target, a loaded HF model.
        data: its recording.
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
    trainer = Trainer(model, data, Path(out), settings or HeadTraining())
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

    Args:
        model, data, out, settings: as of `train`.

    Attributes:
        task: what learns, on the target's device.
        samples, holdout: numbers of what is learnt, and of what is kept for measuring.
        step, seconds: taken so far.
        acceptance: of the last measurement.

    Raises:
        SoonerError: a recording of another target or of other states, or too small.
    """

    def __init__(self, model: Any, data: DataSet, out: Path, settings: Any) -> None:
        adapter = self.adapter = adapt(model)
        self.data, self.settings, self.out = data, settings, out
        layers = settings.recorded_layers(adapter.layers)
        check_target(data.index["target"], adapter)
        if (have := data.index["options"].get("layers", "()")) != repr(layers):
            raise SoonerError(
                f"recording '{data.folder}' keeps hidden_states {have}, format "
                f"'{settings.format}' learns from {layers}; record the data anew, into another "
                "folder"
            )
        kind: Any = BlockTask if isinstance(settings, BlockTraining) else HeadTask
        cut = len(data) - max(round(settings.holdout * len(data)), 1)
        if cut < 1:
            raise SoonerError(
                f"{len(data)} recorded samples are too few to train on and to hold some out; "
                "record more"
            )
        # The last ones are held out, since neighbours may be alike.
        step = max(-(-(len(data) - cut) // kind.measured), 1)
        self.samples, self.holdout = range(cut), range(cut, len(data), step)
        with torch.random.fork_rng():  # modules draw first weights from the global generator
            torch.manual_seed(settings.seed)
            learnt = (data[number] for number in self.samples)
            self.head = kind.first_head(adapter, settings, learnt).to(adapter.device)
        self.task: HeadTask | BlockTask = kind(self.head, adapter, settings)
        self.optimizer = torch.optim.AdamW(
            self.head.parameters(), lr=settings.lr, weight_decay=settings.weight_decay,
            betas=settings.betas,
        )  # fmt: skip
        self.step, self.seconds = 0, 0.0
        self.acceptance: dict[str, Any] = {}

    def _batch(self, numbers: Iterable[int], step: int) -> Any:
        return self.task.batch([self.data[number] for number in numbers], step)

    def holdout_batches(self) -> Iterator[Any]:
        """Yields samples that are kept for measuring."""
        size = self.settings.batch
        for start in range(0, len(self.holdout), size):
            yield self._batch(self.holdout[start : start + size], self.settings.steps)

    def run(self, progress: bool, on_step: OnStep | None, stop_after: int | None) -> Any:
        """Train to the last step, or for `stop_after` steps; returns the head.

        Raises:
            SoonerError: the folder can't be written.
        """
        last = self.settings.steps
        last = last if stop_after is None else min(last, self.step + stop_after)
        check_writable(self.out / LOG, "folder")
        with Progress(disable=not progress) as bar:
            task = bar.add_task("", total=self.settings.steps)
            while self.step < last:
                entry = self._train_step()
                text = f"loss {entry['loss']:.3g}"
                bar.update(task, completed=self.step, description=text)
                if self.step % self.settings.check_every == 0:
                    entry["check"] = self.acceptance = self.measure()
                if on_step is not None:
                    on_step(entry)
                if self.step % EVERY == 0 or "check" in entry:
                    with (self.out / LOG).open("a") as file:
                        file.write(json.dumps(entry) + "\n")
                if self.step % self.settings.save_every == 0:
                    self.save()
        self.acceptance = self.measure()
        self.task.calibrate(self.holdout_batches())
        self.save()
        return self.head.eval()

    def _train_step(self) -> dict[str, Any]:
        """Returns what is logged of one optimiser step.

        Each sample is seen once before any comes again, in an order that follows from the seed
        alone, so that a resumed run sees the same.
        """
        begun, settings, count = time.perf_counter(), self.settings, len(self.samples)
        for group in self.optimizer.param_groups:
            group["lr"] = settings.rate(self.step)
        places = range(self.step * settings.batch, (self.step + 1) * settings.batch)
        numbers = [_order(settings.seed, place // count, count)[place % count] for place in places]
        self.head.train()
        parts = self.task(self._batch(numbers, self.step))
        self.optimizer.zero_grad(set_to_none=True)
        parts["loss"].backward()
        nn.utils.clip_grad_norm_(self.head.parameters(), settings.clip)
        self.optimizer.step()
        entry = {name: float(value.detach()) for name, value in parts.items()}
        rate, self.step = settings.rate(self.step), self.step + 1
        self.seconds += time.perf_counter() - begun
        return {"step": self.step, "seconds": round(self.seconds, 1), **entry, "lr": rate}

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """Returns the share of held-out drafts whose first `d` tokens are all accepted, wherever in
        an answer they begin, for each depth `d`: `chain`."""
        self.head.eval()
        counts = [
            torch.stack([part.flatten(0, -2).sum(0).cpu() for part in self.task.hits(batch)])
            for batch in self.holdout_batches()
        ]
        begun, holding = torch.stack(counts).sum(0)
        return {"chain": [round(share, 4) for share in (holding / begun.clamp(min=1)).tolist()]}

    def save(self) -> None:
        """Write the state and the head, each whole or not at all."""
        tree, model, settings = revision(), self.adapter.model, self.settings
        record = {
            "settings": asdict(settings),
            "verifier": {
                "name_or_path": model.name_or_path or None,
                "architectures": model.config.architectures or [type(model).__name__],
            },
            "data": [{"samples": len(self.data), "sha256": self.data.digest}],
            "seconds": round(self.seconds, 1),
            "acceptance": self.acceptance,
            "git": tree.commit and tree.commit[:8] + "+" * tree.is_dirty,
            "versions": versions(),
            "threads": torch.get_num_threads(),
            "step": self.step,
        }
        head = self.head.with_provenance(record, self.task.temperature)
        head.save_pretrained(self.out / "head", settings.layout)
        state = {
            **self._origin(self.settings), "step": self.step, "seconds": self.seconds,
            "head": self.head.state_dict(), "optimizer": self.optimizer.state_dict(),
        }  # fmt: skip
        with replacing(self.out / "state.pt") as part:
            torch.save(state, part)

    def _origin(self, recipe: Any) -> dict[str, Any]:
        """Returns what a state was made from; the layout of files is no part of it."""
        settings = {name: of for name, of in asdict(recipe).items() if name != "layout"}
        return {"settings": settings, "data": [self.data.digest]}

    def resume(self) -> None:
        """Load `state.pt`, if there is one.

        Raises:
            SoonerError: it is of another recipe or other data.
        """
        path = self.out / "state.pt"
        if not path.is_file():
            return
        state = torch.load(path, weights_only=True, map_location=self.adapter.device)
        usual = self._origin(type(self.settings)())  # of settings that came after a state
        state["settings"] = {**usual["settings"], **state["settings"]}
        for name, value in self._origin(self.settings).items():
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
