"""Runs a recipe of stages: steps, resumable state, reports, the finished checkpoint.

What differs between miniatures is in `Lesson`: the model, its loss and its figures.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from sooner.errors import SoonerError
from sooner.io import replacing
from sooner.methods.threads import torch_threads
from sooner.tasks.train_draft.log import ProgressLine

from . import cards
from .recipes import CHANGEABLE
from .training import deepen, depth_of, schedule


class Lesson:
    """One training task.

    Attributes:
        model: all that must be kept between runs, buffers included.
        decoder: name in `model` of what stages deepen; empty where the depth does not change.
        low: share of a deepened decoder that holds the trained layers, see `models.silent.spread`.
        start: checkpoint folder that the weights came from; `None` is fresh weights.
    """

    model: nn.Module
    decoder: ClassVar[str] = ""
    low: ClassVar[float] = 1.0
    start: Path | None = None

    def enter(self, stage: Any, index: int) -> None:
        """Make what a stage needs from its own seed, so that a resumed run makes the same."""
        if self.decoder and stage.layers:
            deepen(self.model.get_submodule(self.decoder), stage.layers, self.low)

    def shape_like(self, state: dict[str, torch.Tensor]) -> None:
        """Give `model` the depth of a saved state."""
        if self.decoder:
            mark = f"{self.decoder}.model.language_model.layers."
            deepen(self.model.get_submodule(self.decoder), depth_of(state, mark), self.low)

    def loss(self, stage: Any, rng: np.random.Generator) -> tuple[torch.Tensor, Mapping[str, Any]]:
        """Return the loss of one step on data drawn from `rng`, and what to report beside it."""
        raise NotImplementedError

    def after_step(self, rng: np.random.Generator) -> None:
        """Do what follows the optimizer's step."""

    def check(self) -> Mapping[str, Any]:
        """Return held-out figures, quick enough for the middle of training."""
        raise NotImplementedError

    def write(self, folder: Path) -> tuple[nn.Module, dict[str, Any]]:
        """Write the checkpoint.

        Returns:
            The model as it is loaded from there, and the figures of its card.
        """
        raise NotImplementedError


class LessonTrainer:
    """One run. Its whole state is in `state.pt`, so a resumed run makes the same steps.

    Args:
        out: holds `state.pt`, `log.jsonl` and `checkpoint`.
        config: the recipe, a dataclass with `stages`, `seed`, `save_every` and `check_every`.
        lesson: what is taught.
        threads: torch threads; `None` leaves them as they are.
        progress: show a line.
        on_step: called with every step's report.
    """

    def __init__(
        self,
        out: Path,
        config: Any,
        lesson: Lesson,
        *,
        threads: int | None = None,
        progress: bool = True,
        on_step: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.out, self.config, self.lesson = out, config, lesson
        self.threads, self.progress, self.on_step = threads, progress, on_step
        self.stage_index = self.step = 0
        self.seconds = 0.0
        self.rng = np.random.default_rng(config.seed)
        self.optimizer: torch.optim.Optimizer | None = None

    # --- the run

    def run(self, stop_after: int | None = None) -> Path:
        """Go through the stages, or leave resumably after `stop_after` steps."""
        left = stop_after if stop_after is not None else math.inf
        with torch_threads(self.threads), ProgressLine(self.progress) as line:
            while self.stage_index < len(self.config.stages):
                stage = self.config.stages[self.stage_index]
                self._enter(stage)
                while self.step < stage.steps:
                    if left <= 0:
                        self.save_state()
                        return self.out / "checkpoint"
                    begun = time.perf_counter()
                    report = self._step(stage)
                    self.seconds += time.perf_counter() - begun
                    left -= 1
                    self._report(stage, report, line)
                self.stage_index, self.step, self.optimizer = self.stage_index + 1, 0, None
                self.save_state()
            folder = self.out / "checkpoint"
            model, figures = self.lesson.write(folder)
            cards.write(folder, model, self.config, self.seconds, figures, self.lesson.start)
        return folder

    def _enter(self, stage: Any) -> None:
        if self.optimizer is not None:
            return
        self.lesson.enter(stage, self.stage_index)
        self.optimizer = torch.optim.AdamW(
            [p for p in self.lesson.model.parameters() if p.requires_grad],
            lr=stage.lr, betas=(0.9, 0.98), weight_decay=0.01,
        )  # fmt: skip

    def _step(self, stage: Any) -> dict[str, Any]:
        assert self.optimizer is not None
        for group in self.optimizer.param_groups:
            group["lr"] = stage.lr * schedule(self.step, stage.over or stage.steps)
        with torch.autocast("cpu", torch.bfloat16, enabled=stage.bf16):
            loss, report = self.lesson.loss(stage, self.rng)
        # All gradients: those that an earlier stage left to what is frozen now would count below.
        self.lesson.model.zero_grad(set_to_none=True)
        loss.backward()
        trained = [p for p in self.lesson.model.parameters() if p.grad is not None]
        nn.utils.clip_grad_norm_(trained, 1.0)
        self.optimizer.step()
        self.lesson.after_step(self.rng)
        self.step += 1
        return {"loss": float(loss.detach()), **report}

    # --- reports and state

    def _report(self, stage: Any, report: dict[str, Any], line: ProgressLine) -> None:
        entry = {
            "stage": self.stage_index, "kind": stage.kind, "step": self.step,
            "steps": stage.steps, "seconds": round(self.seconds, 1), **report,
        }  # fmt: skip
        if self.config.check_every and self.step % self.config.check_every == 0:
            entry["check"] = self.lesson.check()
        line.show(entry)
        if self.on_step is not None:
            self.on_step(entry)
        if self.step % 20 == 0 or "check" in entry:
            self.out.mkdir(parents=True, exist_ok=True)
            with (self.out / "log.jsonl").open("a") as log:
                log.write(json.dumps(entry) + "\n")
        if self.step % self.config.save_every == 0:
            self.save_state()

    def save_state(self) -> None:
        """Write `state.pt`; the file is replaced whole, so a kill leaves the old one."""
        self.out.mkdir(parents=True, exist_ok=True)
        state = {
            "recipe": cards.plain(self.config),
            "stage_index": self.stage_index,
            "step": self.step,
            "seconds": self.seconds,
            "model": self.lesson.model.state_dict(),
            "optimizer": self.optimizer.state_dict() if self.optimizer is not None else None,
            "rng": self.rng.bit_generator.state,
        }
        with replacing(self.out / "state.pt") as part:
            torch.save(state, part)

    def resume(self) -> bool:
        """Load `state.pt` if there is one. SoonerError if finished stages differ."""
        path = self.out / "state.pt"
        if not path.exists():
            return False
        state = torch.load(path, weights_only=True)
        self._check_recipe(state)
        self.stage_index, self.step = state["stage_index"], state["step"]
        self.seconds = state["seconds"]
        # Before the stage is entered: what `enter` makes may hang on the weights so far.
        self.lesson.shape_like(state["model"])
        self.lesson.model.load_state_dict(state["model"])
        if state["optimizer"] is not None:
            self._enter(self.config.stages[self.stage_index])
            assert self.optimizer is not None
            self.lesson.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
        self.rng.bit_generator.state = state["rng"]
        return True

    def _check_recipe(self, state: dict[str, Any]) -> None:
        # Later stages may change between runs; what the weights already went through may not.
        begun = state.get("stage_index", 0) + (state["optimizer"] is not None)
        then, now = state["recipe"], cards.plain(self.config)
        # A file of before there were stages or one of today's options is of another recipe, too.
        same = then.get("stages", [])[:begun] == now["stages"][:begun]
        if not same or any(then.get(key) != now[key] for key in now.keys() - {*CHANGEABLE}):
            raise SoonerError(
                f"{self.out / 'state.pt'} is of another recipe; "
                "train with that recipe, into another folder, or with resume=False"
            )


def show_count(line: ProgressLine, kind: str, count: int, done: int) -> None:
    """Show how much of what training needs beforehand is made, such as demonstrations."""
    line.show({"stage": 0, "kind": kind, "step": done, "steps": count})


def trainer(lessons: Mapping[str, Callable[[Path, Any], Lesson]]) -> Callable[..., Path]:
    """The function that trains a part of a miniature.

    Args:
        lessons: makes the lesson of each part from a run's folder and recipe; its first weights
            come from torch's global generator, which is seeded by the recipe.
    """

    def train(
        out: Path | str,
        config: Any,
        *,
        resume: bool = True,
        threads: int | None = None,
        progress: bool = True,
        stop_after: int | None = None,
        on_step: Callable[[dict[str, Any]], None] | None = None,
    ) -> Path:
        """Train one part of a miniature and write its checkpoint folder.

        Args:
            out: folder that receives `checkpoint/` (what `from_pretrained` reads, with its
                `card.json`: held-out figures, sizes, times, versions), `state.pt` (all that
                resuming needs) and `log.jsonl` (a line per report). Parts that it is built on are
                looked for beside it.
            config: the recipe.
            resume: go on from `state.pt` if there is one. The resumed run makes the same steps as
                an uninterrupted one. False starts anew.
            threads: torch threads for this run; None leaves them as they are.
            progress: show a progress line.
            stop_after: leave after this many steps in this call, with `state.pt` written.
            on_step: called after each step with `{"stage", "kind", "step", "steps", "loss", ...}`.

        Returns:
            The checkpoint folder. It exists only once every stage is done.

        Raises:
            SoonerError: `state.pt` is of another recipe, or what the part is built on is missing;
                the error says how to go on.
        """
        out = Path(out)
        with torch.random.fork_rng():  # HF draws first weights from the global generator
            torch.manual_seed(config.seed)
            lesson = lessons[config.part](out, config)
        run = LessonTrainer(
            out, config, lesson, threads=threads, progress=progress, on_step=on_step
        )
        if resume:
            run.resume()
        return run.run(stop_after)

    return train
