"""Runs a recipe: demonstrations, stages, resumable state, held-out checks, the checkpoint."""

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

from ..progress import Line
from ..training import schedule, threads
from . import architecture, build, card, collect, data, losses
from .recipe import Recipe, Stage, plain

CHUNK = 64


class Trainer:
    """One run. Its whole state is in `state.pt`, so a resumed run makes the same steps.

    Raises:
        SoonerError: demonstrations have to be made and the simulator is not installed.
    """

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
        self.rng = np.random.default_rng(config.seed)
        for name, count in config.records.items():
            collect.collect(out / "data", name, count, config.data_seed)
        records = collect.load(out / "data")
        self.kept, self.held = data.split(records, config.held)
        self.stats = architecture.statistics(records["actions"][self.kept])
        self.reader = data.Reader(records, self.stats)
        depth = next((stage.layers for stage in config.stages if stage.layers), config.shape.layers)
        with torch.random.fork_rng():  # HF draws first weights from the global generator
            torch.manual_seed(config.seed)
            shape = dataclasses.replace(config.shape, layers=depth)
            self.model = architecture.build_model(shape, self.stats)
            self.hints = losses.Hints(config.shape.width, self.reader.ids.shape[1])
        self.optimizer: torch.optim.Optimizer | None = None

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
                self.save_state()
            return self.finish()

    def finish(self) -> Path:
        """Write the checkpoint and its card."""
        folder = self.out / "checkpoint"
        build.save(self.model, folder)
        card.write(folder, self.config, self.seconds, self.check())
        return folder

    def _enter(self, stage: Stage) -> None:
        if self.optimizer is not None:
            return
        if stage.layers:
            architecture.grow(self.model, stage.layers)
        self.optimizer = torch.optim.AdamW(
            [*self.model.parameters(), *self.hints.parameters()],
            lr=stage.lr, betas=(0.9, 0.98), weight_decay=0.01,
        )  # fmt: skip

    def _step(self, stage: Stage) -> dict[str, Any]:
        assert self.optimizer is not None
        for group in self.optimizer.param_groups:
            group["lr"] = stage.lr * schedule(self.step, stage.steps)
        batch = self.reader.batch(self.rng.choice(self.kept, stage.rows), self.rng)
        seen = self.model.model.see(batch.pixels)
        loss, report = losses.locate(self.hints, seen, batch)
        if stage.kind == "policy":
            acting, found = losses.act(self.model, self.hints, seen, batch)
            loss, report = 0.3 * loss + acting, {**report, **found}
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        trained = [p for p in self.model.parameters() if p.grad is not None]
        nn.utils.clip_grad_norm_(trained, 1.0)
        self.optimizer.step()
        self.step += 1
        return {"loss": float(loss.detach()), **report}

    @torch.no_grad()
    def check(self) -> dict[str, Any]:
        """How well held-out demonstrations are followed, by task: mean distance of the likeliest
        bin and share within 9 bins, the expert's earlier bins given; how often the right patch is
        found."""
        tasks = self.reader.records["tasks"]
        found = {}
        for task, name in enumerate(collect.NAMES):
            held = self.held[tasks[self.held] == task]
            if not len(held):
                continue
            parts = [self._check(held[at : at + CHUNK]) for at in range(0, len(held), CHUNK)]
            found[name] = {
                key: round(float(np.mean([part[key] for part in parts])), 3) for key in parts[0]
            }
        return found

    def _check(self, index: np.ndarray) -> dict[str, float]:
        batch = self.reader.batch(index)
        seen = self.model.model.see(batch.pixels)
        _, where = losses.locate(self.hints, seen, batch)
        return {**where, **losses.act(self.model, self.hints, seen, batch)[1]}

    def _report(self, stage: Stage, report: dict[str, Any], line: Line) -> None:
        entry = {
            "stage": self.stage_index, "kind": stage.kind, "step": self.step,
            "steps": stage.steps, "seconds": round(self.seconds, 1), **report,
        }  # fmt: skip
        every = self.config.check_every
        if every and self.step % every == 0:
            entry["check"] = self.check()
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
        if not same or any(then[key] != now[key] for key in ("shape", "seed", "records")):
            raise ValueError(
                f"{self.out / 'state.pt'} is of another recipe; "
                "train with that recipe, into another folder, or with resume=False"
            )
