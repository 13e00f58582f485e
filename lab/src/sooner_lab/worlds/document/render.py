"""Pages as pixels: black on white, a little different each time."""

from __future__ import annotations

import numpy as np

from . import glyphs
from .page import CELL, DrawnPage


def draw(page: DrawnPage) -> np.ndarray:
    """The clean page: uint8 `[height, width]`, black letters on white."""
    width, height = page.size
    ink = np.zeros((height, width), np.float32)
    for region in page.regions:
        strength = 0.7 if region.label == "header" else 1.0
        for word in region.words:
            drawn = strength * glyphs.ink(word.ink, word.style, word.bullet)
            spot = ink[word.row * CELL : (word.row + 1) * CELL, word.left : word.right]
            np.maximum(spot, drawn[:, : spot.shape[1]], out=spot)
        for left, top, right, bottom in region.rules:
            ink[top:bottom, left:right] = 0.6
    return (255 * (1 - ink)).round().astype(np.uint8)


def vary(picture: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A simulated scan of the page: paper less white, ink less black, a little noise."""
    paper, ink = rng.uniform(235, 256), rng.uniform(0, 50)
    seen = ink + (paper - ink) * (picture.astype(np.float32) / 255)
    seen += rng.normal(0, rng.uniform(0, 4), picture.shape).astype(np.float32)
    return np.clip(seen, 0, 255).round().astype(np.uint8)


def rgb(picture: np.ndarray) -> np.ndarray:
    """`[height, width]` to `[height, width, 3]`."""
    return np.repeat(picture[..., None], 3, axis=2)
