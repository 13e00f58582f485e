"""A needle of the miniature's world with a question about it, and the haystack around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from sooner.checks import check_choice

from ..worlds.video import world

ASKS: dict[str, str] = {
    "colour": "what colour is the {shape} ?",
    "background": "on what background is the {shape} ?",
}
"""Questions about a needle."""

TALE = 8
"""Sentences of a document at most."""


@dataclass(frozen=True)
class Needle:
    """One needle.

    Attributes:
        scene: what it shows. Nothing else in its haystack shows or names that shape.
        ask: a key of `ASKS`.
        frames: uint8 `[frames, height, width, 3]`.
    """

    scene: world.Scene
    ask: str
    frames: np.ndarray

    @property
    def question(self) -> str:
        return ASKS[self.ask].format(shape=self.scene.shape)

    @property
    def answer(self) -> str:
        """The exact answer."""
        return str(getattr(self.scene, self.ask))


def shape_needle(
    rng: np.random.Generator, *, ask: str = "colour", frames: int = 1, side: int = 112
) -> Needle:
    """Draw a needle; in a single frame its shape rests.

    Args:
        ask: a key of `ASKS`.
        frames: of the needle.
        side: height and width in pixels.

    Raises:
        SoonerError: an unknown question.
    """
    check_choice("needle question", ask, ASKS)
    scene = world.sample_scene(rng)
    scene = world.still(scene) if frames == 1 else scene
    pixels = np.empty((frames, side, side, 3), np.uint8)
    show(scene, pixels)
    return Needle(scene, ask, pixels)


def show(scene: world.Scene, frames: np.ndarray) -> None:
    """Film a scene over `frames [count, side, side, 3]`; its shape rests in a single frame."""
    count = len(frames)
    for place in range(count):
        world.draw(scene, world.centre(scene, place / count), frames[place])


def tell(scene: world.Scene) -> str:
    """The world's sentence about a scene, without its number."""
    return world.describe(scene, 0).partition(" : ")[2]


def haystack(
    count: int, at: int, scene: world.Scene, side: int, rng: np.random.Generator
) -> np.ndarray:
    """Frames around a needle, uint8 `[count, side, side, 3]`.

    One scene is shown up to the needle and one behind it, as the miniature was trained on. Neither
    has the needle's shape or background, so that the cut is visible.

    Args:
        at: frames in front of the needle.
        scene: the needle's.
    """
    drawn = np.empty((count, side, side, 3), np.uint8)
    before: str | None = None
    for begin, end in pairwise(sorted({0, at, count})):
        other = world.sample_scene(rng, before)
        while other.shape == scene.shape or other.background == scene.background:
            other = world.sample_scene(rng, before)
        show(other, drawn[begin:end])
        before = other.background
    return drawn


def documents(rng: np.random.Generator, not_shape: str) -> Iterator[list[str]]:
    """Endless documents about scenes that nobody sees, none of which names `not_shape`."""
    while True:
        scenes = (world.sample_scene(rng) for _ in range(2 * TALE))
        yield [tell(scene) for scene in scenes if scene.shape != not_shape][:TALE]


def fill(
    texts: Iterator[list[str]], budgets: Sequence[int], count: Callable[[str], int]
) -> list[list[str]]:
    """Whole sentences for each gap between frames, close to its budget of tokens.

    A gap begins with a new document, takes up more where that is short, and cuts the last one
    behind a sentence. What it takes too much or too little, the next one makes up for, so the sum
    is off by about half a sentence.

    Args:
        texts: documents as lists of sentences, without end.
        budgets: tokens of each gap.
        count: counts the tokens of a sentence.
    """
    gaps: list[list[str]] = []
    owed = 0.0
    for budget in budgets:
        owed += budget
        gap: list[str] = []
        for sentence in chain.from_iterable(texts):
            tokens = max(count(sentence), 1)
            if owed < tokens / 2:
                break
            gap.append(sentence)
            owed -= tokens
        gaps.append(gap)
    return gaps
