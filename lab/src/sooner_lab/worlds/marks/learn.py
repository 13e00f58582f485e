"""Captions and answers about marks as a lesson of the common trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..training import depth_of, first_model, write_depth
from ..video.architecture import LOW, grow
from ..video.evaluate import load
from . import architecture, card, data, draw, evaluate, world
from .recipe import MarkRecipe, MarkStage

CHECK_SEED = 10_023  # held-out clips for progress reports; training seeds are small numbers
CHECK_CLIPS = 8
CROWD = 24
"""Marks of a frame that teaches the tower alone."""
DIMMEST = 0.5
"""Contrast of a training clip's clearest mark, at least."""
AUXILIARY = 0.3
"""Weight of the auxiliary loss beside the answers'."""
FIXED = ("shape", "seed")
"""Fields of the recipe in which a resumed run must agree."""


class MarkLesson:
    """Clips, the model, and the head that names what a cell shows; it is dropped in the end."""

    def __init__(self, config: MarkRecipe) -> None:
        self.config, self.writer = config, data.PackedRowWriter()
        with torch.random.fork_rng():  # HF draws first weights from the global generator
            torch.manual_seed(config.seed)
            self.captioner = first_model(config, None, architecture.build_model, load)
            self.head = nn.Linear(config.shape.width, sum(draw.LABELS.values()))
        self.model: nn.Module = nn.ModuleDict({"captioner": self.captioner, "head": self.head})
        self.stage: MarkStage = config.stages[0]

    def enter(self, stage: MarkStage, index: int) -> None:
        self.stage = stage
        if stage.layers:
            grow(self.captioner, stage.layers)

    def shape_like(self, state: dict[str, Tensor]) -> None:
        mark = "captioner.model.language_model.layers."
        grow(self.captioner, depth_of(state, mark))

    def loss(self, stage: MarkStage, rng: np.random.Generator) -> tuple[Tensor, dict[str, Any]]:
        clear = [float(rng.uniform(DIMMEST, 1.0)) for _ in range(stage.rows)]
        if stage.kind == "vision":
            clips = [world.sample_clip(rng, 1, one, CROWD) for one in clear]
            return evaluate.name(self.head, *evaluate.look(self.captioner, clips)[:2])
        crowd = CROWD if stage.frames == 1 else 0
        crowd = world.CELLS if stage.repeated else crowd
        clips = [
            world.sample_clip(rng, stage.frames, one, crowd, stage.pairs, stage.repeated)
            for one in clear
        ]
        slots = np.sort(rng.choice(world.FRAMES, size=stage.frames, replace=False))
        asked = stage.questions, stage.caption, not stage.repeated
        rows = self.writer.write(rng, clips, *asked)
        with torch.autocast("cpu", enabled=False):
            tokens, labels, features = evaluate.look(self.captioner, clips)
            named, report = evaluate.name(self.head, tokens, labels)
        found = evaluate.ask(self.captioner, self.writer, rows, features, slots, stage.bf16)
        needed = float(found.right[found.need].float().mean())
        report = {"right": round(float(found.right.float().mean()), 4), "seen": round(needed, 4)}
        return found.loss + AUXILIARY * named, {"named": round(float(named.detach()), 3), **report}

    def after_step(self, rng: np.random.Generator) -> None:
        """Does nothing."""

    def check(self) -> dict[str, float]:
        """Held-out accuracy of answers' tokens; none where frames alone are learnt."""
        if self.stage.kind == "vision":
            return {}
        return evaluate.accuracy(
            self.captioner, self.writer, CHECK_SEED, CHECK_CLIPS, self.stage.frames
        )

    def save(self, folder: Path, steps: int, seconds: float) -> None:
        architecture.save(self.captioner, folder)
        write_depth(folder, self.captioner, self.config.shape.layers, LOW)
        card.write(folder, self.config, steps, seconds)
