"""Captions and answers about marks as a lesson of the common trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..training import depth_of, first_model, write_depth
from ..video.architecture import LOW, grow
from ..video.data import normalise
from ..video.evaluate import load
from ..video.losses import name_tokens, see
from . import architecture, card, data, draw, losses, world
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
            return name(self.head, *look(self.captioner, clips)[:2])
        clips = [world.sample_clip(rng, stage.frames, one) for one in clear]
        slots = np.sort(rng.choice(world.FRAMES, size=stage.frames, replace=False))
        rows = self.writer.write(rng, clips)
        with torch.autocast("cpu", enabled=False):
            tokens, labels, features = look(self.captioner, clips)
            named, report = name(self.head, tokens, labels)
        found = ask(self.captioner, self.writer, rows, features, slots, stage.bf16)
        needed = float(found.right[found.need].float().mean())
        report = {"right": round(float(found.right.float().mean()), 4), "seen": round(needed, 4)}
        return found.loss + AUXILIARY * named, {"named": round(float(named.detach()), 3), **report}

    def after_step(self, rng: np.random.Generator) -> None:
        """Does nothing."""

    def check(self) -> dict[str, float]:
        """Held-out accuracy of answers' tokens; none where frames alone are learnt."""
        if self.stage.kind == "vision":
            return {}
        return card.accuracy(
            self.captioner, self.writer, CHECK_SEED, CHECK_CLIPS, self.stage.frames
        )

    def save(self, folder: Path, steps: int, seconds: float) -> None:
        architecture.save(self.captioner, folder)
        write_depth(folder, self.captioner, self.config.shape.layers, LOW)
        card.write(folder, self.config, steps, seconds)


def look(model: Any, clips: list[world.MarkClip]) -> tuple[Tensor, Tensor, Tensor]:
    """Render clips of equal length and let the tower see them.

    Returns:
        tokens [clips * frames, 64, width], their labels [clips * frames, 64, 5], and the tokens by
        clip [clips, frames * 64, width].
    """
    pixels = torch.from_numpy(np.concatenate([draw.render(clip) for clip in clips]))
    tokens = see(model, normalise(pixels.permute(0, 3, 1, 2).float() / 255))
    labels = torch.from_numpy(np.concatenate([draw.labels(clip) for clip in clips]))
    return tokens, labels, tokens.unflatten(0, (len(clips), -1)).flatten(1, 2)


def name(head: nn.Linear, tokens: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Any]]:
    """The auxiliary loss, see `worlds.video.losses.name_tokens`."""
    return name_tokens(head, tokens, labels, draw.LABELS, ("row", "column"))


def ask(
    model: Any,
    writer: data.PackedRowWriter,
    rows: data.PackedRows,
    features: Tensor,
    slots: np.ndarray,
    bf16: bool = False,
) -> losses.Verdicts:
    """Predict all answers of clips whose frames stand at `slots` of a long one."""
    positions, first = data.prefix_positions(len(writer.head), slots)
    return losses.predict(model, rows, writer.head, features, positions, first, bf16)
