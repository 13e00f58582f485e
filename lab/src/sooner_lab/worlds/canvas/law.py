"""A quantised Gauss-Markov field: `p(code | left, above, previous frame)` in closed form.

A code `k` of `K` stands for the value `k`. Behind its neighbours it is a normal number of mean

    c + rho * (mean of the neighbours that exist - c),    c = (K - 1) / 2,

and deviation `sigma`, rounded to the nearest code; what lies outside of the codes is the first or
last one. So `rho` sets how much codes depend on each other, and `sigma`, in bins, their entropy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

NEIGHBOURS = 3
"""Left, above, previous frame."""


@dataclass(frozen=True)
class CanvasLaw:
    """The law of drawings of one shape.

    Attributes:
        height, width, frames: codes of a drawing; one frame is a picture.
        codes: how many there are, K.
        rho: 0 (codes hang on nothing) to below 1.
        sigma: in bins.
    """

    height: int
    width: int
    frames: int
    codes: int
    rho: float
    sigma: float

    @property
    def frame(self) -> int:
        """Codes of a frame."""
        return self.height * self.width

    @property
    def length(self) -> int:
        """Codes of a drawing."""
        return self.frames * self.frame

    @cached_property
    def table(self) -> Tensor:
        """Log-probabilities of a code, by how many neighbours there are and their sum.

        Returns:
            `[1 + NEIGHBOURS, 1 + NEIGHBOURS (codes - 1), codes]` fp64.
        """
        many = torch.arange(1 + NEIGHBOURS, dtype=torch.float64)[:, None]
        total = torch.arange(1 + NEIGHBOURS * (self.codes - 1), dtype=torch.float64)
        centre = (self.codes - 1) / 2
        lean = torch.where(many > 0, total / many.clamp(min=1) - centre, 0.0)
        return binned(centre + self.rho * lean, self.sigma, self.codes)

    def sources(self, places: Tensor) -> Tensor:
        """Where each place's neighbours are: left, above, previous frame; -1 for none.

        Args:
            places: in raster order from 0, `[...]`; none of those outside has a neighbour.

        Returns:
            `[..., NEIGHBOURS]`.
        """
        inside = (places >= 0) & (places < self.length)
        within = places % self.frame
        exists = [within % self.width > 0, within >= self.width, places >= self.frame]
        offsets = (1, self.width, self.frame)
        told = [
            torch.where(one & inside, places - offset, -1)
            for one, offset in zip(exists, offsets, strict=True)
        ]
        return torch.stack(told, -1)

    def log_probs(self, drawings: Tensor) -> Tensor:
        """Of every code that could stand at each place, `[n, length, codes]`.

        Args:
            drawings: codes in raster order, `[n, length]`.
        """
        sources = self.sources(torch.arange(self.length))  # [length, NEIGHBOURS]
        exists = sources >= 0
        total = (drawings[:, sources.clamp(min=0)] * exists).sum(-1)  # [n, length]
        return self.table[exists.sum(-1).expand_as(total), total]

    def log_likelihood(self, drawings: Tensor, given: int = 0) -> Tensor:
        """Nats of each drawing `[n, length]` behind its first `given` codes, `[n]` fp64."""
        chances = self.log_probs(drawings).gather(-1, drawings[..., None])[..., 0]
        return chances[:, given:].sum(-1)

    def entropies(self, drawings: Tensor) -> Tensor:
        """Entropy of each place behind its neighbours, nats, `[n, length]`."""
        log_probs = self.log_probs(drawings)
        return -(log_probs.exp() * log_probs).sum(-1)

    def sample(self, count: int, seed: int) -> Tensor:
        """Drawings of this law, `[count, length]`, by rounding normal numbers: no table needed."""
        generator = torch.Generator().manual_seed(seed)
        centre = (self.codes - 1) / 2
        drawn = torch.zeros(self.length, count, dtype=torch.long)
        for place, sources in enumerate(self.sources(torch.arange(self.length)).tolist()):
            known = [source for source in sources if source >= 0]
            mean = torch.full((count,), centre, dtype=torch.float64)
            if known:
                mean += self.rho * (drawn[known].double().mean(0) - centre)
            noise = torch.randn(count, generator=generator, dtype=torch.float64)
            drawn[place] = (mean + self.sigma * noise).round().clamp(0, self.codes - 1).long()
        return drawn.T.contiguous()


def binned(mean: Tensor, sigma: float, codes: int) -> Tensor:
    """Log-probabilities of a rounded normal number, `[..., codes]` fp64.

    Differences of the normal distribution function, taken on the side where it is small, so that
    no tail is lost in a 1.
    """
    middle = torch.arange(codes, dtype=torch.float64)
    low = (middle - 0.5 - mean[..., None]) / sigma
    high = (middle + 0.5 - mean[..., None]) / sigma
    low[..., 0], high[..., -1] = -math.inf, math.inf
    is_above = low > 0
    low, high = torch.where(is_above, -high, low), torch.where(is_above, -low, high)
    # `torch.special.ndtr` is 0 from -8.5 deviations on, `erfc` from -38.
    chances = (torch.erfc(-high / math.sqrt(2)) - torch.erfc(-low / math.sqrt(2))) / 2
    return chances.clamp(min=torch.finfo(torch.float64).tiny).log()


def sigma_of(entropy: float, codes: int) -> float:
    """The deviation, in bins, at which a code in the middle has so many nats.

    2.5 nats are about 3 bins: a normal number has `ln(sigma sqrt(2 pi e))`.
    """
    low, high = 0.05, float(codes)
    for _ in range(60):
        sigma = (low + high) / 2
        told = binned(torch.tensor((codes - 1) / 2, dtype=torch.float64), sigma, codes)
        low, high = (sigma, high) if -(told.exp() * told).sum() < entropy else (low, sigma)
    return (low + high) / 2
