"""Dead-leaves textures and their codes.

A picture is what is seen of discs that fall on each other, the last one on top (Matheron 1968);
their radii have the density r^-3 between `RADII`, which makes the statistics those of natural
pictures (Lee, Mumford & Huang 2001). Each disc has a grey of its own that changes evenly along a
direction. A code is the nearest of `CODES` patches that k-means found.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

SIDE, PATCH, CODES = 64, 4, 256
GRID = SIDE // PATCH
TOKENS = GRID * GRID
OPENING = CODES
"""The id that opens a drawing."""
RADII = (3.0, 24.0)
SLOPE, GRAIN = 0.3, 0.02
"""Largest change of grey across a disc, and deviation of the noise on all pixels."""
FITTED, ROUNDS = 1024, 12
"""Pictures that the codes are found on, and rounds of k-means."""


def picture(rng: np.random.Generator) -> np.ndarray:
    """A texture, float32 `[SIDE, SIDE]`, about 0 to 1."""
    made = np.full((SIDE, SIDE), np.nan, dtype=np.float32)
    low, high = RADII
    left = SIDE * SIDE
    while left:  # the uppermost disc first: what is covered is never drawn
        share = rng.random()
        radius = (low**-2 - share * (low**-2 - high**-2)) ** -0.5
        y, x = rng.uniform(-high, SIDE + high, 2)
        grey, angle, slope = rng.random(), rng.uniform(0, 2 * np.pi), rng.uniform(0, SLOPE)
        top, bottom = max(int(y - radius), 0), min(int(y + radius) + 2, SIDE)
        begin, end = max(int(x - radius), 0), min(int(x + radius) + 2, SIDE)
        if top >= bottom or begin >= end:
            continue
        down = np.arange(top, bottom, dtype=np.float32)[:, None] - np.float32(y)
        right = np.arange(begin, end, dtype=np.float32)[None] - np.float32(x)
        part = made[top:bottom, begin:end]
        seen = (down**2 + right**2 <= radius**2) & np.isnan(part)
        lean = (np.cos(angle) * right + np.sin(angle) * down) * (slope / radius)
        part[seen] = (grey + lean).astype(np.float32)[seen]
        left -= int(seen.sum())
    return made + GRAIN * rng.standard_normal(made.shape).astype(np.float32)


def patches(pictures: np.ndarray) -> Tensor:
    """Pictures `[n, SIDE, SIDE]` as patches in raster order, `[n, TOKENS, PATCH * PATCH]`."""
    parts = torch.from_numpy(pictures).view(-1, GRID, PATCH, GRID, PATCH)
    return parts.permute(0, 1, 3, 2, 4).reshape(-1, TOKENS, PATCH * PATCH)


def find_codes(seed: int, pictures: int = FITTED) -> Tensor:
    """The codebook, `[CODES, PATCH * PATCH]`, by k-means from patches of the world `seed`."""
    rng = np.random.default_rng([seed, 1])
    seen = patches(np.stack([picture(rng) for _ in range(pictures)])).flatten(0, 1)
    book = seen[torch.from_numpy(rng.choice(len(seen), CODES, replace=False))].clone()
    for _ in range(ROUNDS):
        picked = nearest(seen, book)
        count = torch.bincount(picked, minlength=CODES)
        total = torch.zeros_like(book).index_add_(0, picked, seen)
        empty = count == 0
        book = torch.where(empty[:, None], book, total / count.clamp(min=1)[:, None])
        book[empty] = seen[torch.from_numpy(rng.choice(len(seen), int(empty.sum())))]
    return book[book.mean(1).argsort()]


def nearest(seen: Tensor, book: Tensor) -> Tensor:
    """The code of each patch `[n, PATCH * PATCH]`, `[n]`."""
    return ((book**2).sum(1) - 2 * seen @ book.T).argmin(1)


def codes(rng: np.random.Generator, count: int, book: Tensor) -> Tensor:
    """Codes of `count` pictures, `[count, TOKENS]`."""
    seen = patches(np.stack([picture(rng) for _ in range(count)]))
    return nearest(seen.flatten(0, 1), book).view(count, TOKENS)


def pixels(drawn: Tensor, book: Tensor) -> Tensor:
    """Pictures of codes `[n, TOKENS]`, `[n, SIDE, SIDE]`."""
    parts = book[drawn].view(-1, GRID, GRID, PATCH, PATCH)
    return parts.permute(0, 1, 3, 2, 4).reshape(-1, SIDE, SIDE)
