"""How the tokenizer learns: mean squared error, a codebook of running averages, no dead codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from sooner.models.clip_tokenizer import MotionTokenizer, MotionTokenizerConfig

from ..codebook import CodebookLesson, RunningAverages
from ..training import save_half
from . import card, evaluate, world
from .pixels import to_pixels
from .recipe import MotionRecipe, MotionStage


class CodebookAverages(RunningAverages):
    """The codebook as running averages of the vectors that chose each code."""

    keep, dead = 0.99, 0.05

    def book(self) -> torch.Tensor:
        return self.total / self.count.clamp(min=1e-4)[:, None]


class TokenizerLesson(CodebookLesson):
    """See `lessons.Lesson`."""

    def __init__(self, out: Path, config: MotionRecipe) -> None:
        self.config = config
        self.tokenizer = MotionTokenizer(MotionTokenizerConfig(**config.shape))
        self.tokenizer.codebook.weight.requires_grad_(False)
        sizes = self.tokenizer.config
        self.averages = CodebookAverages(sizes.codes, sizes.code_width)
        self.model: nn.Module = nn.ModuleDict(
            {"tokenizer": self.tokenizer, "averages": self.averages}
        )
        self.entries = self.tokenizer.codebook.weight

    def enter(self, stage: MotionStage, index: int) -> None:
        if stage.kind != "quantised" or bool(self.averages.total.any()):
            return
        rng = np.random.default_rng((self.config.seed, index))
        with torch.no_grad():
            latent = torch.cat(
                [self.tokenizer.embed(self._draw(rng, 8, 3, stage.lattice)) for _ in range(12)]
            )
            self.begin(latent.flatten(0, -2), rng)

    def loss(
        self, stage: MotionStage, rng: np.random.Generator
    ) -> tuple[torch.Tensor, dict[str, float]]:
        pixels = self._draw(rng, stage.rows, stage.latents, stage.lattice)
        latent = self.tokenizer.embed(pixels).float()
        if stage.kind == "plain":
            self.seen = None
            # A little weight on the latents' size keeps them where a codebook can follow.
            error = functional.mse_loss(self.tokenizer.paint(latent).float(), pixels)
            return error + 1e-4 * latent.square().mean(), {"mse": float(error.detach())}
        codes = self.tokenizer.nearest(latent.detach())
        quantised = self.tokenizer.codebook(codes)
        self.seen, self.picked = latent.detach().flatten(0, -2), codes.flatten()
        # Straight through: the decoder's gradient passes the codebook by.
        painted = self.tokenizer.paint(latent + (quantised - latent).detach()).float()
        error = functional.mse_loss(painted, pixels)
        commit = functional.mse_loss(latent, quantised)
        return error + 0.02 * commit, {
            "mse": float(error.detach()),
            "commit": float(commit.detach()),
            "used": self.used,
        }

    def check(self) -> dict[str, float]:
        return card.tokenizer_figures(self.tokenizer, 16)

    def write(self, folder: Path) -> tuple[nn.Module, dict[str, Any]]:
        save_half(self.tokenizer, folder)
        loaded = evaluate.load_tokenizer(folder)
        return loaded, {"held_out": card.tokenizer_figures(loaded, 128)}

    def _draw(
        self, rng: np.random.Generator, rows: int, latents: int, lattice: int
    ) -> torch.Tensor:
        """Pixels [rows, 3, frames, H, W] of stretches of fresh clips; 0 latents are all."""
        whole = self.tokenizer.config.latent_shape(world.FRAMES)[0]
        length = 1 + self.tokenizer.config.group * ((latents or whole) - 1)
        frames = []
        for _ in range(rows):
            clip = world.sample(rng, lattice)
            begin = int(rng.integers(world.FRAMES - length + 1))
            indices = range(begin, begin + length)
            frames.append(world.render(clip, rng, indices, self.config.grain))
        return to_pixels(torch.from_numpy(np.stack(frames)))
