"""The policy as a lesson of the common trainer."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sooner.models import silent
from sooner.models.openvla.model import OpenVLAForActionPrediction
from sooner.models.openvla.processing import OpenVLAProcessor
from sooner.tasks.train_draft.log import ProgressLine

from .. import cards
from ..lessons import Lesson, show_count, trainer
from ..recipes import Stage
from ..training import first_depth, save_half, write_depth
from . import architecture, collect, data, losses, words
from .recipe import RobotRecipe

CHUNK = 64


class PolicyLesson(Lesson):
    """Demonstrations, the policy, and the hints that are dropped in the end.

    Args:
        out: gets the folder `data`, unless its demonstrations are there.
        config: the recipe.
        progress: show a line while demonstrations are made.

    Raises:
        SoonerError: demonstrations have to be made and the simulator is not installed.
    """

    decoder = "policy"

    def __init__(self, out: Path, config: RobotRecipe, progress: bool = False) -> None:
        self.config = config
        with ProgressLine(progress) as line:
            for name, count in config.records.items():
                tell = partial(show_count, line, f"demonstrations of {name}", count)
                collect.collect(out / "data", name, count, config.data_seed, tell)
        records = collect.load(out / "data")
        self.train_ids, self.check_ids = data.split(records, config.check_count)
        stats = architecture.statistics(records["actions"][self.train_ids])
        self.reader = data.Reader(records, stats)
        shape = dataclasses.replace(config.shape, layers=first_depth(config, config.shape.layers))
        self.policy = architecture.build_model(shape, stats)
        self.hints = losses.RobotHints(config.shape.width, self.reader.ids.shape[1])
        self.model: nn.Module = nn.ModuleDict({"policy": self.policy, "hints": self.hints})

    def loss(self, stage: Stage, rng: np.random.Generator) -> tuple[Tensor, dict[str, Any]]:
        batch = self.reader.batch(rng.choice(self.train_ids, stage.rows), rng)
        seen = self.policy.model.see(batch.pixels)
        loss, report = losses.locate(self.hints, seen, batch)
        if stage.kind == "vision":
            return loss, report
        acting, figures = losses.act(self.policy, self.hints, seen, batch)
        return 0.3 * loss + acting, {**report, **figures}

    @torch.no_grad()
    def check(self) -> dict[str, Any]:
        """How well held-out demonstrations are followed, by task: mean distance of the likeliest
        bin and share within 9 bins, the expert's earlier bins given; how often the right patch is
        found."""
        tasks = self.reader.records["tasks"]
        figures = {}
        for task, name in enumerate(collect.NAMES):
            indices = self.check_ids[tasks[self.check_ids] == task]
            if not len(indices):
                continue
            parts = [self._check(indices[at : at + CHUNK]) for at in range(0, len(indices), CHUNK)]
            figures[name] = {
                key: round(float(np.mean([part[key] for part in parts])), 3) for key in parts[0]
            }
        return figures

    def _check(self, index: np.ndarray) -> dict[str, float]:
        batch = self.reader.batch(index)
        seen = self.policy.model.see(batch.pixels)
        _, where = losses.locate(self.hints, seen, batch)
        return {**where, **losses.act(self.policy, self.hints, seen, batch)[1]}

    def write(self, folder: Path) -> tuple[nn.Module, dict[str, Any]]:
        """Held-out figures are on the card; success rates come from `sooner act rollout`."""
        folder.mkdir(parents=True, exist_ok=True)
        save_half(self.policy, folder)
        processor = OpenVLAProcessor.of(words.build_tokenizer(), self.policy.config)
        processor.save_pretrained(folder)
        write_depth(folder, self.policy, self.config.shape.layers)
        model = silent.as_run(OpenVLAForActionPrediction.from_pretrained(folder), folder)
        return model, {**cards.depth(model, folder), "held_out": self.check()}


def train(out: Path | str, config: RobotRecipe, **options: Any) -> Path:
    """Collect demonstrations into `out/data`, train, and write a checkpoint; see `trainer`."""
    make = partial(PolicyLesson, progress=options.get("progress", True))
    return trainer({"target": make})(out, config, **options)
