"""Captioning as a lesson of the common trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import cards
from ..lessons import Lesson, trainer
from ..training import first_model, start_of, write_depth
from . import architecture, bank, build, data, evaluate, losses, ranking
from .recipe import RECIPES, VideoRecipe, VideoStage

CHECK_SEED = 10_007  # held-out clips for progress reports; training seeds are small numbers
CHECK_CLIPS = 8
DROPPED = (0.7, 0.95)  # fewest and most of a pruned row's visual tokens that are dropped


class CaptionLesson(Lesson):
    """Clips, the captioner, and the head that names what a token shows; it is dropped in the end.

    Args:
        out: the run's folder.
        config: the recipe.

    Raises:
        SoonerError: there is no fitting checkpoint to start from, or none to rank with.
    """

    decoder, low = "captioner", architecture.LOW

    def __init__(self, out: Path, config: VideoRecipe) -> None:
        self.config, self.writer = config, data.CaptionRowWriter()
        self.start = start_of(out, config)
        self.captioner = first_model(config, self.start, architecture.build_model, evaluate.load)
        self.head = nn.Linear(config.shape.width, sum(data.LABEL_SIZES))
        self.model: nn.Module = nn.ModuleDict({"captioner": self.captioner, "head": self.head})
        self.stage: VideoStage = config.stages[0]
        self.bank: bank.SceneBank | None = None
        self.ranker = ranking.Ranker((out / config.ranker).resolve()) if config.ranker else None

    def enter(self, stage: VideoStage, index: int) -> None:
        super().enter(stage, index)
        self.stage, self.bank = stage, None
        self.model.requires_grad_(True)
        if stage.kind == "language":
            inner = self.captioner.model
            for module in (inner.vision_tower, inner.multi_modal_projector):
                module.requires_grad_(False)
            seed = (self.config.seed, index)
            self.bank = bank.encode(self.captioner, self.writer, self.config.bank, seed)
            if self.ranker is not None and stage.ranked:
                self.ranker.enter(self.writer, self.config.bank, seed)

    def loss(self, stage: VideoStage, rng: np.random.Generator) -> tuple[Tensor, dict[str, Any]]:
        if stage.kind == "vision":
            frames = data.sample_frames(rng, stage.rows, _noise(rng), stage.everywhere)
            seen = losses.see(self.captioner, frames.pixels)
            return losses.name_tokens(self.head, seen, frames.labels)
        return self._caption(stage, rng)

    def _caption(
        self, stage: VideoStage, rng: np.random.Generator
    ) -> tuple[Tensor, dict[str, Any]]:
        scenes = int(rng.integers(stage.scenes[0], stage.scenes[1] + 1))
        frame_counts = stage.pace.draw(rng, scenes)
        frames = int(frame_counts.sum())
        row = frames * architecture.POOLED**2 + 24 * (len(frame_counts) + 1)
        # Rows share their number of frames, and have the scenes' lengths in orders of their own.
        spread = rng.permuted(np.tile(frame_counts, (max(stage.rows // row, 1), 1)), axis=1)
        first = len(self.writer.head)
        features, batch, places = self._from_bank(spread, rng)
        loss, right = losses.predict(self.captioner, batch, features, first, stage.bf16, places)
        return loss, {"scenes": len(frame_counts), "frames": frames, "right": right}

    def _from_bank(
        self, frame_counts: np.ndarray, rng: np.random.Generator
    ) -> tuple[Tensor, data.CaptionRows, Tensor | None]:
        """Features of clips, their rows, and the places that are left of these."""
        assert self.bank is not None
        picked = self.bank.draw(rng, *frame_counts.shape)
        features = self.bank.gather(picked, frame_counts)
        sentences = [self.bank.report(*pair) for pair in zip(picked, frame_counts, strict=True)]
        batch = self.writer.write(rng, sentences, int(frame_counts[0].sum()))
        is_pruned = rng.random() < self.stage.pruned
        return (
            features,
            batch,
            self._retained(batch, picked, frame_counts, rng) if is_pruned else None,
        )

    def _retained(
        self,
        batch: data.CaptionRows,
        picked: np.ndarray,
        frame_counts: np.ndarray,
        rng: np.random.Generator,
    ) -> Tensor | None:
        """The places that are left of pruned rows [rows, kept]; None: too short to prune."""
        first = len(self.writer.head)
        visual = batch.frames_per_row * architecture.POOLED**2 + 1  # with the newline's
        if not self.stage.ranked:
            video = range(first, first + visual)
            return data.places_to_keep(rng, len(frame_counts), batch.ids.shape[1], video, DROPPED)
        if visual <= ranking.SHORT:
            return None
        assert self.ranker is not None
        assert self.ranker.bank is not None
        seen = self.ranker.bank.gather(picked, frame_counts)
        return self.ranker.places_to_keep(batch, seen, first, float(rng.uniform(*DROPPED)))

    def check(self) -> dict[str, float]:
        """Held-out accuracy of captions; none where frames alone are learnt."""
        if self.stage.kind == "vision":
            return {}
        clips = evaluate.sample_clips(CHECK_SEED, CHECK_CLIPS, self.stage.scenes[1])
        scores = evaluate.score_clips(self.captioner, build.build_processor(), clips)
        return {key: round(value, 3) for key, value in scores.items()}

    def write(self, folder: Path) -> tuple[nn.Module, dict[str, Any]]:
        build.save(self.captioner, folder)
        write_depth(folder, self.captioner, self.config.shape.layers, architecture.LOW)
        model, _ = evaluate.load(folder)
        return model, {**cards.depth(model, folder), "accuracy": evaluate.by_scenes(folder)}


def _noise(rng: np.random.Generator) -> torch.Generator:
    """Noise of a step's pictures, which follows from the step's own generator."""
    return torch.Generator().manual_seed(int(rng.integers(2**62)))


train = trainer(dict.fromkeys(RECIPES, CaptionLesson))
