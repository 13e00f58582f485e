"""Runs a recipe: stages, steps, resumable state, held-out checks, the finished checkpoint."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sooner.errors import SoonerError

from ..progress import Line
from ..training import schedule, threads
from . import architecture, bank, build, card, data, evaluate, losses, reading
from .recipe import Recipe, Stage, plain

CHECK_SEED = 10_007  # held-out pages for progress reports; training seeds are small numbers
CHECK_PAGES = 8


def _first_model(config: Recipe, out: Path) -> Any:
    """The model that the first stage begins with: fresh, or that of the folder `start`."""
    depth = next((stage.layers for stage in config.stages if stage.layers), config.shape.layers)
    if not config.start:
        return architecture.build_model(dataclasses.replace(config.shape, layers=depth))
    folder = (out / config.start).resolve()
    if not (folder / "config.json").is_file():
        raise SoonerError(f"no checkpoint at '{folder}' to start from; train that first")
    begun = evaluate.load(folder)[0]
    depth = begun.config.text_config.num_hidden_layers
    model = architecture.build_model(dataclasses.replace(config.shape, layers=depth))
    try:
        model.load_state_dict(begun.state_dict())
    except RuntimeError as error:
        raise SoonerError(f"'{folder}' is not of the shape {config.shape}") from error
    return model


class Trainer:
    """One run. Its whole state is in `state.pt`, so a resumed run makes the same steps."""

    def __init__(
        self,
        out: Path,
        config: Recipe,
        *,
        threads: int | None = None,
        progress: bool = True,
        on_step: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.out, self.config, self.threads = out, config, threads
        self.progress, self.on_step = progress, on_step
        self.stage_index = self.step = 0
        self.seconds = 0.0
        self.writer = data.Writer()
        self.rng = np.random.default_rng(config.seed)
        with torch.random.fork_rng():  # HF draws first weights from the global generator
            torch.manual_seed(config.seed)
            self.model = _first_model(config, out)
            self.hints = losses.Hints(config.shape.width)
        self.optimizer: torch.optim.Optimizer | None = None
        self.banks: dict[tuple[int, int], bank.PageBank] = {}

    # --- the run

    def run(self, stop_after: int | None = None) -> Path:
        left = stop_after if stop_after is not None else math.inf
        with threads(self.threads), Line(self.progress) as line:
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
                self.banks = {}
                self.save_state()
            return self.finish()

    def finish(self) -> Path:
        """Write the checkpoint and its card."""
        folder = self.out / "checkpoint"
        build.save(self.model, folder)
        card.write(folder, self.config, self.seconds, self.out / self.config.start)
        return folder

    def _enter(self, stage: Stage) -> None:
        """Make what a stage needs, from its own seed, so that a resumed run makes the same."""
        if self.optimizer is not None:
            return
        if stage.layers:
            architecture.grow(self.model, stage.layers)
        self.model.requires_grad_(True)
        if stage.kind == "language":
            self.model.model.visual.requires_grad_(False)
            for size in sorted(set(stage.sizes)):
                seed = (self.config.seed, self.stage_index, *size)
                self.banks[size] = bank.encode(self.model, self.writer, stage.pages, size, seed)
        self.optimizer = torch.optim.AdamW(
            [*self.model.parameters(), *self.hints.parameters()],
            lr=stage.lr, betas=(0.9, 0.98), weight_decay=0.01,
        )  # fmt: skip

    # --- one step

    def _step(self, stage: Stage) -> dict[str, Any]:
        assert self.optimizer is not None
        for group in self.optimizer.param_groups:
            group["lr"] = stage.lr * schedule(self.step, stage.steps)
        rows, columns = stage.sizes[self.rng.integers(len(stage.sizes))]
        count = max(stage.tokens // (rows * columns), 1)
        loss, report = self._loss(stage, count, rows, columns)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        trained = [p for p in self.model.parameters() if p.grad is not None]
        nn.utils.clip_grad_norm_(trained, 1.0)
        self.optimizer.step()
        self.step += 1
        return {"loss": round(float(loss.detach()), 4), "rows": rows, **report}

    def _loss(
        self, stage: Stage, count: int, rows: int, columns: int
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        named: torch.Tensor | float = 0.0
        report: dict[str, Any] = {}
        if stage.kind == "language":
            shown, answers = self.banks[rows, columns].draw(self.rng, count)
        else:
            pages = data.sample_pages(self.rng, count, rows, columns)
            sheets = self.writer.sheets(pages, self.rng)
            seen = losses.see(self.model, sheets.patches, sheets.grid)
            named, report = losses.name(self.model, self.hints, seen, sheets)
            if stage.kind == "vision":
                return named, report
            shown = reading.Shown(seen, sheets.words, sheets.previous)
            answers = [self.writer.answer(page) for page in pages]
        text = self.writer.rows(self.rng, answers, rows, columns)
        loss, told = reading.read(self.model, self.hints, text, shown, stage.guide, stage.bf16)
        return loss + 0.3 * named, {**report, **told}

    # --- reports and state

    def check(self, stage: Stage) -> dict[str, float]:
        """Held-out accuracy: words that are read, or, for "vision", words that are named."""
        rows, columns = max(stage.sizes)
        if stage.kind != "vision":
            processor = build.build_processor()
            size = (rows, columns)
            return evaluate.measure(self.model, processor, CHECK_SEED, CHECK_PAGES, size)
        rng = np.random.default_rng(CHECK_SEED)
        sheets = self.writer.sheets(data.sample_pages(rng, 4 * CHECK_PAGES, rows, columns), rng)
        with torch.no_grad():
            seen = losses.see(self.model, sheets.patches, sheets.grid)
            return losses.name(self.model, self.hints, seen, sheets)[1]

    def _report(self, stage: Stage, report: dict[str, Any], line: Line) -> None:
        entry = {
            "stage": self.stage_index, "kind": stage.kind, "step": self.step,
            "steps": stage.steps, "seconds": round(self.seconds, 1), **report,
        }  # fmt: skip
        every = self.config.check_every
        if every and self.step % every == 0:
            entry["check"] = self.check(stage)
        line.show(entry)
        if self.on_step is not None:
            self.on_step(entry)
        if self.step % 20 == 0:
            self.out.mkdir(parents=True, exist_ok=True)
            with (self.out / "log.jsonl").open("a") as log:
                log.write(json.dumps(entry) + "\n")
        if self.step % self.config.save_every == 0:
            self.save_state()

    def save_state(self) -> None:
        """Write `state.pt`; the file is replaced whole, so a kill leaves the old one."""
        self.out.mkdir(parents=True, exist_ok=True)
        optimizer = self.optimizer
        state = {
            "recipe": plain(self.config),
            "stage_index": self.stage_index,
            "step": self.step,
            "seconds": self.seconds,
            "layers": len(self.model.model.language_model.layers),
            "model": self.model.state_dict(),
            "hints": self.hints.state_dict(),
            "optimizer": optimizer.state_dict() if optimizer is not None else None,
            "rng": self.rng.bit_generator.state,
        }
        fresh = self.out / "state.pt.part"
        torch.save(state, fresh)
        fresh.replace(self.out / "state.pt")

    def resume(self) -> bool:
        """Load `state.pt` if there is one. ValueError if finished stages differ in the recipe."""
        path = self.out / "state.pt"
        if not path.exists():
            return False
        state = torch.load(path, weights_only=True)
        self._check_recipe(state)
        architecture.grow(self.model, state["layers"])
        self.model.load_state_dict(state["model"])
        self.hints.load_state_dict(state["hints"])
        self.stage_index, self.step = state["stage_index"], state["step"]
        self.seconds = state["seconds"]
        if state["optimizer"] is not None:
            self._enter(self.config.stages[self.stage_index])
            assert self.optimizer is not None
            self.optimizer.load_state_dict(state["optimizer"])
        self.rng.bit_generator.state = state["rng"]
        return True

    def _check_recipe(self, state: dict[str, Any]) -> None:
        # Later stages may change between runs; what the weights already went through may not.
        begun = state["stage_index"] + (state["optimizer"] is not None)
        then, now = state["recipe"], plain(self.config)
        same = list(then["stages"])[:begun] == list(now["stages"])[:begun]
        if not same or any(then[key] != now[key] for key in ("shape", "seed", "start")):
            raise ValueError(
                f"{self.out / 'state.pt'} is of another recipe; "
                "train with that recipe, into another folder, or with resume=False"
            )
