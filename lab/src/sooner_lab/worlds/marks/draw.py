"""Pixels of the world of marks, and what each cell shows."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch.nn.functional import interpolate

from . import world

CELL = 16
SIDE = world.GRID * CELL
NOISE = 10.0
"""Standard deviation of each pixel's noise, of 255."""
INSIDE_RGB, GLYPH_RGB = (28, 28, 32), (245, 245, 240)
TILE, SEED = 512, 23

_FONT = {
    "0": "01110 10001 10011 10101 11001 10001 01110",
    "1": "00100 01100 00100 00100 00100 00100 01110",
    "2": "01110 10001 00001 00110 01000 10000 11111",
    "3": "11110 00001 00001 01110 00001 00001 11110",
    "4": "00010 00110 01010 10010 11111 00010 00010",
    "5": "11111 10000 11110 00001 00001 10001 01110",
    "6": "00110 01000 10000 11110 10001 10001 01110",
    "7": "11111 00001 00010 00100 01000 01000 01000",
    "8": "01110 10001 10001 01110 10001 10001 01110",
    "9": "01110 10001 10001 01111 00001 00010 01100",
    "star": "1001001 0101010 0011100 1111111 0011100 0101010 1001001",
    "cross": "0011100 0011100 1111111 1111111 1111111 0011100 0011100",
    "heart": "0110110 1111111 1111111 1111111 0111110 0011100 0001000",
    "arrow": "0001000 0011100 0111110 1111111 0001000 0001000 0001000",
}

LABELS = {
    "colour": 2 + len(world.COLOURS),  # none, grey, the six
    "ring": 1 + len(world.RINGS),
    "glyph": 1 + len(world.GLYPHS),
    "row": len(world.ROWS),
    "column": len(world.COLUMNS),
}
"""Classes of each of a cell's labels; 0 of the first three is "no mark here"."""


@cache
def glyph_mask(glyph: str) -> np.ndarray:
    """bool [16, 16], the glyph in the middle."""
    bits = np.array([[mark == "1" for mark in line] for line in _FONT[glyph].split()])
    found = np.zeros((CELL, CELL), dtype=bool)
    left = (CELL - bits.shape[1]) // 2
    found[4:11, left : left + bits.shape[1]] = bits
    return found


@cache
def ring_masks(ring: str) -> tuple[np.ndarray, np.ndarray]:
    """The ring and what it encloses, both bool [16, 16]."""
    y, x = np.abs(np.mgrid[:CELL, :CELL] - 7.0)
    most = np.maximum(x, y)
    far = {
        "circle": np.hypot(x, y),
        "square": most + 0.9,
        "diamond": np.maximum(most, 0.87 * (x + y)),
    }
    return (far[ring] >= 4.7) & (far[ring] < 6.7), far[ring] < 4.7


@cache
def looks(colour: str, ring: str, glyph: str) -> tuple[np.ndarray, np.ndarray]:
    """A mark at full contrast, float32 [16, 16, 3], and where it is anything: bool [16, 16]."""
    edge, inside = ring_masks(ring)
    drawn = glyph_mask(glyph)
    found = np.zeros((CELL, CELL, 3), dtype=np.float32)
    found[inside] = INSIDE_RGB
    found[edge] = world.COLOURS.get(colour, world.GREY_RGB)
    found[drawn] = GLYPH_RGB
    return found, edge | inside | drawn


@cache
def texture() -> np.ndarray:
    """What drifts behind the marks: float32 [512 + side, 512 + side, 3], periodic in 512."""
    noise = torch.Generator().manual_seed(SEED)
    found = torch.full((1, 3, TILE, TILE), 115.0)
    for cells, height in ((24, 24.0), (72, 16.0), (170, 10.0)):
        coarse = torch.randn(1, 3, cells, cells, generator=noise)
        found += height * interpolate(coarse, size=(TILE, TILE), mode="bilinear")
    tile = found[0].permute(1, 2, 0).numpy()
    return np.pad(tile, ((0, SIDE), (0, SIDE), (0, 0)), mode="wrap")


def render(clip: world.MarkClip) -> np.ndarray:
    """All frames of a clip: uint8 [frames, 128, 128, 3], the same every time."""
    rng = np.random.default_rng(clip.seed)
    start, drift = rng.integers(TILE, size=2), rng.integers(-3, 4, size=2)
    channels, gain = rng.permutation(3), rng.uniform(0.7, 1.1)
    found = np.empty((clip.frames, SIDE, SIDE, 3), dtype=np.float32)
    for frame in range(clip.frames):
        top, left = (start + frame * drift) % TILE
        found[frame] = texture()[top : top + SIDE, left : left + SIDE, channels]
    found *= np.float32(gain)
    for frame, mark in clip.shown():
        look, where = looks(mark.colour, mark.ring, mark.glyph)
        shift = tuple(rng.integers(0, 2, size=2))  # no mark leaves its cell: masks end at row 13
        look, where = (np.roll(one, shift, (0, 1)) for one in (look, where))
        y, x = (CELL * part for part in divmod(mark.cell, world.GRID))
        cell = found[frame, y : y + CELL, x : x + CELL]
        cell[where] += np.float32(mark.contrast) * (look[where] - cell[where])
    found += np.float32(NOISE) * rng.standard_normal(found.shape, dtype=np.float32)
    return (found + 0.5).clip(0, 255).astype(np.uint8)


def labels(clip: world.MarkClip) -> np.ndarray:
    """What each cell shows: int64 [frames, 64, 5], see `LABELS`."""
    found = np.zeros((clip.frames, world.CELLS, len(LABELS)), dtype=np.int64)
    rows, columns = np.divmod(np.arange(world.CELLS), world.GRID)
    found[..., 3] = rows * len(world.ROWS) // world.GRID
    found[..., 4] = columns * len(world.COLUMNS) // world.GRID
    colours = (world.GREY, *world.COLOURS)
    for frame, mark in clip.shown():
        found[frame, mark.cell, :3] = (
            colours.index(mark.colour) + 1,
            world.RINGS.index(mark.ring) + 1,
            world.GLYPHS.index(mark.glyph) + 1,
        )
    return found
