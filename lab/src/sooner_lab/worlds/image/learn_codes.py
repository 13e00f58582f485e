"""How the codes learn: rebuilt pictures, a codebook of running averages, no dead entries.

HF's `decode` normalises codebook entries to length one, and with such entries the nearest one
to z is the one of the largest cosine, whatever z's length. So everything here lives on the unit
sphere, and HF's own `encode` finds the same codes once `patches` has written its encoder.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers.models.janus.modeling_janus import JanusVQVAE

from ..codebook import CodebookLesson, RunningAverages
from ..training import save_half
from . import architecture, build, card, codes, world
from .patches import PatchEncoder, write_into
from .recipe import ImageRecipe, ImageStage

_POINTS = 24  # latents for each entry that k-means begins with


class DirectionAverages(RunningAverages):
    """The codebook as directions of running averages of the latents that chose each entry.

    `count` is in units of the mean use, so it means the same whatever the batch.
    """

    keep, dead = 0.98, 0.06

    def scale(self, latents: int) -> float:
        return len(self.count) / latents

    def book(self) -> torch.Tensor:
        return functional.normalize(self.total, dim=1)


class CodesLesson(CodebookLesson):
    """See `lessons.Lesson`."""

    on_sphere = True

    def __init__(self, out: Path, config: ImageRecipe) -> None:
        self.config = config
        shape = config.shape
        self.codes = architecture.build_codes(shape).train()
        # Written, not trained: from `patches` and from `averages`.
        for module in (self.codes.encoder, self.codes.quant_conv, self.codes.quantize):
            module.requires_grad_(False)
        self.patches = PatchEncoder(shape).train()
        self.averages = DirectionAverages(shape.entries, shape.dim)
        self.model: nn.Module = nn.ModuleDict(
            {"codes": self.codes, "patches": self.patches, "averages": self.averages}
        )
        self.entries = self.codes.quantize.embedding.weight

    def enter(self, stage: ImageStage, index: int) -> None:
        if stage.kind != "quantised" or bool(self.averages.total.any()):
            return
        rng = np.random.default_rng((self.config.seed, index))
        entries = len(self.averages.count)
        with torch.no_grad():
            pixels = self._draw(rng, max(_POINTS * entries // architecture.TOKENS, 1))
            self.begin(_flat(self._embed(pixels)), rng)

    def loss(
        self, stage: ImageStage, rng: np.random.Generator
    ) -> tuple[torch.Tensor, dict[str, float]]:
        pixels = self._draw(rng, stage.rows)
        latent = self._embed(pixels)  # [n, dim, grid, grid]
        if stage.kind == "free":
            self.seen = None
            error = rebuild_loss(self._paint(latent), pixels)
            return error, {"error": float(error.detach())}
        self.seen = _flat(latent.detach())
        self.picked, entry = self._nearest(latent)
        # Straight through: the decoder's gradient passes the codebook by.
        error = rebuild_loss(self._paint(latent + (entry - latent).detach()), pixels)
        commit = (latent - entry).square().sum(1).mean()
        return error + self.config.commit * commit, {
            "error": float(error.detach()),
            "commit": float(commit.detach()),
            "used": self.used,
        }

    def check(self) -> dict[str, float]:
        """Held-out figures; none before there is a codebook."""
        if self.seen is None:
            return {}
        return card.codes_figures(self._finished(), 16)

    def write(self, folder: Path) -> tuple[nn.Module, dict[str, Any]]:
        save_half(self._finished(), folder)
        loaded = build.load_codes(folder)
        return loaded, card.codes_figures(loaded, card.PICTURES)

    def _finished(self) -> JanusVQVAE:
        """The autoencoder with an encoder of its own."""
        made = copy.deepcopy(self.codes)
        write_into(made, self.patches)
        return made

    def _draw(self, rng: np.random.Generator, rows: int) -> torch.Tensor:
        """Fresh pictures [rows, 3, side, side] in -1..1."""
        drawn = [world.draw(world.sample(rng), rng, world.ROUGH) for _ in range(rows)]
        return codes.to_pixels(drawn)

    def _embed(self, pixels: torch.Tensor) -> torch.Tensor:
        """Latents of length one [n, dim, grid, grid], in full precision."""
        with torch.autocast("cpu", enabled=False):
            return functional.normalize(self.patches(pixels), dim=1)

    def _paint(self, latent: torch.Tensor) -> torch.Tensor:
        return self.codes.decoder(self.codes.post_quant_conv(latent)).float()

    def _nearest(self, latent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Indices [n * tokens] and entries [n, dim, grid, grid] nearest to latents."""
        book = self.entries
        with torch.autocast("cpu", enabled=False):
            picked = (_flat(latent.detach()) @ book.T).argmax(1)
        entry = book[picked].view(len(latent), *latent.shape[2:], -1).permute(0, 3, 1, 2)
        return picked, entry


def rebuild_loss(made: torch.Tensor, pixels: torch.Tensor) -> torch.Tensor:
    """Error of pixels, of their differences, and of each code's mean colour.

    Without the last, codes go to the ground's texture and a shape's colour drifts to another.
    """
    error = made - pixels  # [n, 3, side, side]
    edges = error.diff(dim=2).abs().mean() + error.diff(dim=3).abs().mean()
    colour = functional.avg_pool2d(error, architecture.PATCH).square().mean()
    return error.abs().mean() + 0.25 * edges + 4 * colour


def _flat(latent: torch.Tensor) -> torch.Tensor:
    """[n, dim, grid, grid] to [n * tokens, dim]."""
    return latent.permute(0, 2, 3, 1).flatten(0, 2)
