"""Training of the codes: the VQ autoencoder that turns 64 x 64 pixels into 256 tokens.

HF's `decode` normalises codebook entries to length one, and with such entries the nearest one
to z is the one of the largest cosine, whatever z's length. So everything here lives on the unit
sphere, and HF's own `encode` finds the same codes once `patches` has written its encoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from transformers.models.janus.modeling_janus import JanusVQVAE

from . import architecture, card, world
from .loop import Schedule, decayed
from .patches import PatchEncoder, write_into
from .recipe import CodesRecipe

KEEP = 0.98  # of the running counts and sums at each step
DEAD = 0.06  # of the mean use, below which an entry starts again elsewhere


def to_pixels(drawn: Sequence[np.ndarray]) -> torch.Tensor:
    """uint8 pictures to what the autoencoder reads, `[n, 3, side, side]` in -1..1."""
    stacked = torch.from_numpy(np.stack(drawn))
    return stacked.permute(0, 3, 1, 2).contiguous().float() / 127.5 - 1


def encode(model: JanusVQVAE, pixels: torch.Tensor, batch: int = 16) -> torch.Tensor:
    """Codes of pictures in -1..1, `[n, tokens]`."""
    with torch.no_grad():
        made = [model.encode(some).image_tokens.view(len(some), -1) for some in pixels.split(batch)]
    return torch.cat(made)


def decode(model: JanusVQVAE, codes: torch.Tensor, batch: int = 16) -> torch.Tensor:
    """Pictures in 0..1 of codes `[n, tokens]`, `[n, 3, side, side]`."""
    with torch.no_grad():
        made = [model.decode(some) for some in codes.split(batch)]
    return (torch.cat(made) / 2 + 0.5).clamp(0, 1)


class Codes:
    """The part of a run that trains the autoencoder; see `loop.Part`."""

    def __init__(self, config: CodesRecipe) -> None:
        self.config, self.steps = config, config.steps
        self.model = architecture.build_codes(config.shape).train()
        self.patches = PatchEncoder(config.shape).train()
        self.modules = {"model": self.model, "patches": self.patches}
        entries, dim = config.shape.entries, config.shape.dim
        # Running sums of what each entry stood for: the codebook is their direction.
        self.book = {"counts": torch.zeros(entries), "sums": torch.zeros(entries, dim)}
        for unused in (self.model.encoder, self.model.quant_conv):
            unused.requires_grad_(False)  # written at the end
        self.optimizer = torch.optim.AdamW(
            decayed(self.model, 0.01) + decayed(self.patches, 0.01),
            lr=config.lr,
            betas=(0.9, 0.98),
        )
        self.schedule = Schedule(config.lr, config.steps)

    def step(self, index: int) -> dict[str, Any]:
        """One step: rebuild pictures, through the codebook once it has been placed."""
        if index == self.config.free:
            self._place_entries(index)
        self.schedule.set(self.optimizer, index)
        pixels = self._pixels(index)
        z = functional.normalize(self.patches(pixels), dim=1)  # [n, dim, grid, grid]
        commit, report, latent = torch.zeros(()), {}, z
        if index >= self.config.free:
            picked, entry = self._nearest(z)
            commit = (z - entry).square().sum(1).mean()
            latent = z + (entry - z).detach()
            restart = index < 0.8 * self.steps
            report = {"used": self._follow(z.detach(), picked, index, restart)}
        with torch.autocast("cpu", torch.bfloat16, enabled=self.config.bf16):
            made = self.model.decoder(self.model.post_quant_conv(latent))
        error = rebuild_loss(made.float(), pixels)
        loss = error + self.config.commit * commit
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for module in self.modules.values():
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        self.optimizer.step()
        return {"loss": float(error.detach()), "commit": float(commit.detach()), **report}

    def extra(self) -> dict[str, Any]:
        """State beyond modules and optimizer."""
        return {"book": self.book}

    def restore(self, extra: dict[str, Any]) -> None:
        self.book = extra["book"]

    def finish(self, folder: Path, seconds: float) -> None:
        """Write the autoencoder in fp16, and its card."""
        write_into(self.model, self.patches)
        half = JanusVQVAE(self.model.config)
        half.load_state_dict(self.model.state_dict())
        half.half().save_pretrained(folder)
        card.write_codes(folder, self.config, seconds)

    def _pixels(self, index: int) -> torch.Tensor:
        config, first = self.config, index * self.config.batch
        drawn = [world.drawn(first + i, config.seed, world.ROUGH) for i in range(config.batch)]
        return to_pixels([pixels for _, pixels in drawn])

    def _nearest(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Indices `[n * grid * grid]` and entries `[n, dim, grid, grid]` nearest to z."""
        book = self.model.quantize.embedding.weight.detach()
        flat = z.detach().permute(0, 2, 3, 1).flatten(0, 2)  # [n * grid * grid, dim]
        picked = (flat @ book.T).argmax(1)
        entry = book[picked].view(len(z), *z.shape[2:], -1).permute(0, 3, 1, 2)
        return picked, entry

    def _follow(self, z: torch.Tensor, picked: torch.Tensor, index: int, restart: bool) -> float:
        """Move entries to the running mean of what they stand for; the share in use."""
        flat = z.permute(0, 2, 3, 1).flatten(0, 2)
        counts, sums = self.book["counts"], self.book["sums"]
        seen = torch.bincount(picked, minlength=len(counts)).float()
        counts.mul_(KEEP).add_(seen, alpha=1 - KEEP)
        sums.mul_(KEEP).index_add_(0, picked, flat, alpha=1 - KEEP)
        dead = counts < DEAD * counts.mean()
        if restart and dead.any():
            generator = torch.Generator().manual_seed(self.config.seed * 1_000_003 + index)
            drawn = torch.randint(len(flat), (int(dead.sum()),), generator=generator)
            # At mean use, so that a newcomer is given time before it is judged.
            sums[dead], counts[dead] = flat[drawn] * counts.mean(), counts.mean()
        self.model.quantize.embedding.weight.data.copy_(functional.normalize(sums, dim=1))
        return 1 - float(dead.float().mean())

    @torch.no_grad()
    def _place_entries(self, index: int) -> None:
        """Start the codebook by spherical k-means on the latents of fresh pictures."""
        entries = len(self.book["counts"])
        batches = max(1, 24 * entries // (self.config.batch * architecture.TOKENS))
        latents = []
        for ahead in range(batches):
            hidden = self.patches(self._pixels(index + ahead))
            latents.append(functional.normalize(hidden, dim=1).permute(0, 2, 3, 1).flatten(0, 2))
        flat = torch.cat(latents)  # [points, dim]
        generator = torch.Generator().manual_seed(self.config.seed)
        book = flat[torch.randperm(len(flat), generator=generator)[:entries]]
        for _ in range(10):
            picked = (flat @ book.T).argmax(1)
            sums = torch.zeros_like(book).index_add_(0, picked, flat)
            empty = sums.norm(dim=1) == 0
            book = torch.where(empty[:, None], book, functional.normalize(sums, dim=1))
        counts = torch.bincount(picked, minlength=entries).float()
        mean_use = self.config.batch * architecture.TOKENS / entries
        self.book["counts"].copy_(counts / counts.mean() * mean_use)
        self.book["sums"].copy_(book * self.book["counts"].clamp_min(1e-3)[:, None])
        self.model.quantize.embedding.weight.data.copy_(book)


def rebuild_loss(made: torch.Tensor, pixels: torch.Tensor) -> torch.Tensor:
    """Error of pixels, of their differences, and of each code's mean colour.

    Without the last, codes go to the ground's texture and a shape's colour drifts to another.
    """
    error = made - pixels  # [n, 3, side, side]
    edges = error.diff(dim=2).abs().mean() + error.diff(dim=3).abs().mean()
    colour = functional.avg_pool2d(error, architecture.PATCH).square().mean()
    return error.abs().mean() + 0.25 * edges + 4 * colour
