"""A needle: a picture, a short clip or a sentence, with a question about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from sooner.checks import check_choice
from sooner.errors import SoonerError

from ..worlds.video import words, world
from .haystack import show

Medium = Literal["image", "text"]
MEDIA = ("image", "text")
ASKS: dict[str, str] = {
    "colour": "what colour is the {shape} ?",
    "background": "on what background is the {shape} ?",
    "caption": words.PROMPT,
}
"""Questions about a needle from the world; `caption` asks for all scenes, the needle's among
them."""


@dataclass(frozen=True)
class Needle:
    """One needle.

    Attributes:
        id: what it is called in records.
        medium: `image` or `text`.
        question: about the needle alone.
        answer: the exact answer.
        frames: of an image needle, uint8 `[frames, height, width, 3]`.
        text: of a text needle, its sentence.
        scene: of a needle from the world, what it shows.
        ask: of a needle from the world, a key of `ASKS`.
    """

    id: str
    medium: Medium
    question: str
    answer: str
    frames: np.ndarray | None = None
    text: str | None = None
    scene: world.Scene | None = None
    ask: str | None = None


def shape_needle(
    rng: np.random.Generator,
    medium: Medium = "image",
    *,
    ask: str = "colour",
    frames: int = 1,
    side: int = 112,
) -> Needle:
    """A scene of the miniature's world whose shape nothing else in the haystack has.

    A scene of a single frame, or told in a sentence, keeps its shape at rest.

    Args:
        ask: a key of `ASKS`; `caption` needs an image.
        frames: of the needle.
        side: height and width in pixels.

    Raises:
        SoonerError: an unknown medium or question, or one that does not fit.
    """
    check_choice("needle medium", medium, MEDIA)
    check_choice("needle question", ask, ASKS)
    if ask == "caption" and medium == "text":
        raise SoonerError("ask='caption' needs a needle that is shown; use ask='colour'")
    scene = world.sample_scene(rng)
    if medium == "text" or frames == 1:
        scene = world.still(scene)
    pixels = np.empty((frames, side, side, 3), np.uint8)
    show(scene, pixels)
    return Needle(
        id=f"{scene.colour}-{scene.shape}",
        medium=medium,
        question=ASKS[ask].format(shape=scene.shape),
        answer=tell(scene) if ask == "caption" else getattr(scene, ask),
        frames=pixels if medium == "image" else None,
        text=tell(scene) if medium == "text" else None,
        scene=scene,
        ask=ask,
    )


def tell(scene: world.Scene) -> str:
    """The world's sentence about a scene, without its number."""
    return world.describe(scene, 0).partition(" : ")[2]


def tells(text: str, scene: world.Scene) -> bool:
    """Whether a caption has the scene's shape, colour and background right, in some scene."""
    expected = {name: getattr(scene, name) for name in ("shape", "colour", "background")}
    return any(expected.items() <= claim.items() for claim in world.parse(text).values())
