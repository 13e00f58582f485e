"""Codebooks that are averaged instead of trained: running means of the latents, no dead entries.

After van den Oord et al. 2017 (VQ-VAE), appendix A.1.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from .lessons import Lesson


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

    def book(self) -> torch.Tensor:
        """The codebook that the averages stand for, `[entries, width]`."""
        raise NotImplementedError

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


class CodebookLesson(Lesson):
    """A part with a codebook, which stages of kind "quantised" learn by averaging.

    Attributes:
        averages: of the latents.
        entries: the codebook in the model, `[entries, width]`.
        seen: latents of the last step, `[n, width]`; `None` where it was not quantised.
        picked: their entries, `[n]`.
    """

    on_sphere: ClassVar[bool] = False
    averages: RunningAverages
    entries: torch.Tensor
    seen: torch.Tensor | None = None
    picked: torch.Tensor

    @torch.no_grad()
    def begin(self, latent: torch.Tensor, rng: np.random.Generator) -> None:
        """Start the codebook at k-means of latents `[n, width]`."""
        book = k_means(latent, len(self.entries), rng, self.on_sphere)
        self.averages.begin(book)
        self.entries.copy_(book)

    @torch.no_grad()
    def after_step(self, rng: np.random.Generator) -> None:
        if self.seen is None:
            return
        self.averages.take(self.seen, self.picked)
        self.averages.revive(self.seen, rng)
        self.entries.copy_(self.averages.book())

    @property
    def used(self) -> float:
        """Share of the entries that the last step chose."""
        return len(self.picked.unique()) / len(self.entries)


def k_means(
    latent: torch.Tensor, entries: int, rng: np.random.Generator, on_sphere: bool
) -> torch.Tensor:
    """Ten rounds of k-means of latents `[n, width]`: `[entries, width]`.

    Args:
        on_sphere: latents and means have length one.
    """
    picked = rng.choice(len(latent), size=entries, replace=len(latent) < entries)
    book = latent[torch.from_numpy(picked)].clone()
    for _ in range(10):
        nearest = (book.square().sum(1) - 2 * latent @ book.T).argmin(1)
        number = torch.bincount(nearest, minlength=entries)[:, None]
        total = torch.zeros_like(book).index_add_(0, nearest, latent)
        means = functional.normalize(total, dim=1) if on_sphere else total / number.clamp(min=1)
        book = torch.where(number > 0, means, book)
    return book
