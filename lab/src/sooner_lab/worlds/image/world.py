"""The picture world: captions of one or two coloured shapes on a ground.

    >>> world.prompts(1, seed=0)
    ['a purple circle left of a cyan cross on yellow']

A caption says what there is; where exactly, how large, and all texture is left to the model.
"""

from __future__ import annotations

import zlib

import numpy as np

FORMS = ("circle", "square", "triangle", "cross")
COLOURS = ("red", "green", "blue", "yellow", "purple", "cyan")
RELATIONS = ("left of", "right of", "above", "below")
TEST_EVERY = 12
"""One caption in so many was never trained on."""


def is_test_caption(caption: str) -> bool:
    """Return whether a caption was kept from training; about one in `TEST_EVERY` was."""
    return zlib.crc32(caption.encode()) % TEST_EVERY == 0


def sample(rng: np.random.Generator) -> str:
    """Draw a caption: one shape of three times, two otherwise, none in the ground's colour."""
    count = 1 if rng.random() < 1 / 3 else 2
    ground = _pick(rng, COLOURS)
    palette = tuple(colour for colour in COLOURS if colour != ground)
    forms = [_pick(rng, FORMS) for _ in range(count)]
    colours = [_pick(rng, palette) for _ in range(count)]
    between = f" {_pick(rng, RELATIONS)} " if count == 2 else ""
    shapes = [f"a {colour} {form}" for colour, form in zip(colours, forms, strict=True)]
    return f"{between.join(shapes)} on {ground}"


def prompts(count: int, seed: int) -> list[str]:
    """Return captions that training never saw; they follow from `seed` alone."""
    rng, made = np.random.default_rng(seed), list[str]()
    while len(made) < count:
        caption = sample(rng)
        if is_test_caption(caption):
            made.append(caption)
    return made


def _pick(rng: np.random.Generator, names: tuple[str, ...]) -> str:
    return names[int(rng.integers(len(names)))]
