"""Codebooks that are averaged instead of trained: running means of the latents, no dead entries.

After van den Oord et al. 2017 (VQ-VAE), appendix A.1.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import nn


class RunningAverages(nn.Module):
    """Running averages of the latents that chose each entry.

    Attributes:
        keep: how much of its running average an entry keeps a step.
        dead: an entry whose `count` is below this is moved elsewhere.
        count: latents a step that chose each entry, or as `scale` has it, `[entries]`.
        total: their sum, `[entries, width]`.
    """

    keep: ClassVar[float]
    dead: ClassVar[float]
    count: torch.Tensor
    total: torch.Tensor

    def __init__(self, entries: int, width: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.ones(entries))
        self.register_buffer("total", torch.zeros(entries, width))

    def begin(self, book: torch.Tensor) -> None:
        """Start from a codebook, `[entries, width]`."""
        self.count.fill_(1.0)
        self.total.copy_(book)

    def scale(self, latents: int) -> float:
        """What one of a step's latents counts for."""
        return 1.0

    def take(self, latent: torch.Tensor, picked: torch.Tensor) -> None:
        """Average in latents `[n, width]` that chose the entries `picked`, `[n]`."""
        scale = self.scale(len(latent))
        fresh = torch.zeros_like(self.total).index_add_(0, picked, latent, alpha=scale)
        number = torch.bincount(picked, minlength=len(self.count)) * scale
        self.count.lerp_(number, 1 - self.keep)
        self.total.lerp_(fresh, 1 - self.keep)

    def revive(self, latent: torch.Tensor, rng: np.random.Generator) -> int:
        """Move dead entries onto random latents of the last batch; returns how many."""
        dead = (self.count < self.dead).nonzero()[:, 0]
        picked = torch.from_numpy(rng.integers(len(latent), size=len(dead)))
        # At a count of 1, so that a newcomer is given time before it is judged.
        self.count[dead] = 1.0
        self.total[dead] = latent[picked]
        return len(dead)
