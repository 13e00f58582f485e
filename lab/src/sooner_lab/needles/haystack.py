"""Frames in which a needle is hidden: what every source offers, and the miniature's world."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from sooner.checks import check_whole

from ..worlds.video import world


@dataclass(frozen=True)
class Cut:
    """Where the needle goes, for haystacks that take notice of it.

    Attributes:
        at: haystack frames in front of the needle.
        shape: of a needle from the world; no haystack of the world shows that shape.
        background: of such a needle; its neighbours have another, so that the cut is visible.
    """

    at: int
    shape: str | None = None
    background: str | None = None


class Haystack(Protocol):
    """Source of frames."""

    @property
    def name(self) -> str:
        """What it is, for the record."""
        ...

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of every frame, in pixels."""
        ...

    def frames(self, count: int, cut: Cut, rng: np.random.Generator) -> np.ndarray:
        """`count` frames, uint8 `[count, height, width, 3]`."""
        ...


@dataclass(frozen=True)
class MovingShapes:
    """Scenes of the miniature's world, none with the needle's shape.

    One scene is shown up to the needle and one behind it, as the miniature was trained on.

    Args:
        side: height and width in pixels.

    Raises:
        SoonerError: no pixels.
    """

    side: int = 112

    def __post_init__(self) -> None:
        check_whole("moving shapes: side", self.side)

    @property
    def name(self) -> str:
        return "moving-shapes(two scenes)"

    @property
    def size(self) -> tuple[int, int]:
        return self.side, self.side

    def frames(self, count: int, cut: Cut, rng: np.random.Generator) -> np.ndarray:
        drawn = np.empty((count, self.side, self.side, 3), np.uint8)
        before: str | None = None
        for begin, end in pairwise(sorted({0, cut.at, count})):
            touches = cut.at in (begin, end)
            scene = _other(rng, cut, before, touches)
            show(scene, drawn[begin:end])
            before = scene.background
        return drawn


def show(scene: world.Scene, frames: np.ndarray) -> None:
    """Film a scene over `frames [count, side, side, 3]`; its shape rests in a single frame."""
    count = len(frames)
    for place in range(count):
        world.draw(scene, world.centre(scene, place / count), frames[place])


def _other(
    rng: np.random.Generator, cut: Cut, not_background: str | None, touches: bool
) -> world.Scene:
    while True:
        scene = world.sample_scene(rng, not_background)
        clashes = touches and scene.background == cut.background
        if scene.shape != cut.shape and not clashes:
            return scene
