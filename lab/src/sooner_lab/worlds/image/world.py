"""The picture world: one or two coloured shapes on a textured ground, and their captions.

    >>> picture = world.sample(np.random.default_rng(0))
    >>> picture.caption
    'a cyan square right of a purple cross on red'
    >>> pixels = world.draw(picture, np.random.default_rng(1))  # uint8 [64, 64, 3]

A caption says what there is; where exactly, how large, and all texture is left to the generator
that draws, so that a model of these pictures has much to choose and something to get right.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from . import paint

FORMS = ("circle", "square", "triangle", "cross")
COLOURS = {
    "red": (225, 50, 45), "green": (60, 190, 70), "blue": (60, 90, 235),
    "yellow": (240, 215, 60), "purple": (165, 70, 205), "cyan": (60, 205, 215),
}  # fmt: skip
RELATIONS = ("left of", "right of", "above", "below")
MIRRORED = {"right of": "left of", "below": "above"}
SIDE = 64
DIM = 0.55  # of a colour when it is the ground, so that a shape stands out of it
LATTICE = 4  # pixels; what one code stands for
TEST_EVERY = 12  # one caption in so many is never trained on


@dataclass(frozen=True)
class Look:
    """How pictures of the world are drawn.

    Attributes:
        grain: strength of the grain. Seen with the trained codes: 1 makes 2.7 nats a code that
            nothing can foresee, 0.5 makes 1.6.
        texture: least and most strength of the ground's texture.
        free: shapes lie anywhere in any size, and not on the lattice in one of two sizes.
    """

    grain: float
    texture: tuple[float, float]
    free: bool


# On the lattice edges fall into codes in few ways: with rough pictures a decoder of this size
# still drew blobs after half an hour of training. The codes and the classifier are trained on
# rough ones all the same: to tell more apart than they must, and to judge shapes drawn anywhere.
CALM = Look(0.5, (0.04, 0.12), free=False)
ROUGH = Look(1.0, (0.08, 0.22), free=True)


@dataclass(frozen=True)
class Attributes:
    """What a caption tells.

    Attributes:
        forms: of the one or two shapes, in the caption's order.
        colours: of the same shapes.
        relation: how the first lies to the second; None of a single shape.
        ground: colour of the background.
    """

    forms: tuple[str, ...]
    colours: tuple[str, ...]
    relation: str | None
    ground: str

    def canonical(self) -> Attributes:
        """Returns the picture told from its left or top: one answer for two ways of saying
        it.
        """
        if self.relation not in MIRRORED:
            return self
        return Attributes(
            self.forms[::-1], self.colours[::-1], MIRRORED[self.relation], self.ground
        )


@dataclass(frozen=True)
class Picture:
    """A caption and what it means; `draw` gives one of its many pictures."""

    caption: str
    attributes: Attributes


def describe(attributes: Attributes) -> str:
    """The caption: "a red circle left of a blue square on green"."""
    shapes = [f"a {c} {f}" for c, f in zip(attributes.colours, attributes.forms, strict=True)]
    return f" {attributes.relation} ".join(shapes) + f" on {attributes.ground}"


def is_test_caption(caption: str) -> bool:
    """Whether a caption is kept from training; about one in `TEST_EVERY` is."""
    return zlib.crc32(caption.encode()) % TEST_EVERY == 0


def sample(rng: np.random.Generator, *, is_test: bool = False) -> Picture:
    """Draw a caption: one shape of three times, two otherwise, none in the ground's colour.

    Args:
        rng: numpy generator; it alone decides.
        is_test: draw from the captions that training never sees, not from the others.
    """
    while True:
        count = 1 if rng.random() < 1 / 3 else 2
        ground = _pick(rng, tuple(COLOURS))
        palette = tuple(colour for colour in COLOURS if colour != ground)
        attributes = Attributes(
            forms=tuple(_pick(rng, FORMS) for _ in range(count)),
            colours=tuple(_pick(rng, palette) for _ in range(count)),
            relation=_pick(rng, RELATIONS) if count == 2 else None,
            ground=ground,
        )
        caption = describe(attributes)
        if is_test_caption(caption) == is_test:
            return Picture(caption, attributes)


def prompts(count: int, seed: int) -> list[Picture]:
    """`count` held-out pictures, a pure function of `seed`; their `.caption` is the prompt."""
    rng = np.random.default_rng(seed)
    return [sample(rng, is_test=True) for _ in range(count)]


def draw(picture: Picture, rng: np.random.Generator, look: Look = CALM) -> np.ndarray:
    """Draw one picture of a caption, uint8 `[64, 64, 3]`; texture and places come from `rng`."""
    attributes = picture.attributes.canonical()
    # [side, side, 3]
    canvas = paint.ground(rng, np.multiply(COLOURS[attributes.ground], DIM), look.texture)
    for place, form, colour in zip(
        _places(attributes, rng, look), attributes.forms, attributes.colours, strict=True
    ):
        distance = paint.distance(form, place, _radius(attributes, rng, look))
        paint.stamp(canvas, distance, rng, np.array(COLOURS[colour], dtype=float))
    return paint.finish(canvas, rng, look.grain)


def drawn(index: int, seed: int, look: Look = CALM) -> tuple[Picture, np.ndarray]:
    """Picture `index` of the world `seed`, with its pixels: a pure function of the two."""
    rng = np.random.default_rng((seed, index))
    picture = sample(rng)
    return picture, draw(picture, rng, look)


def drawn_picture(index: int, seed: int) -> Picture:
    """The caption alone of picture `index` of the world `seed`."""
    return sample(np.random.default_rng((seed, index)))


def _places(
    attributes: Attributes, rng: np.random.Generator, look: Look
) -> list[tuple[float, float]]:
    """Centres (x, y): near the middle for one shape, in the two halves for two."""
    middle = SIDE / 2
    if attributes.relation is None:
        return [(middle + _shift(rng, look), middle + _shift(rng, look))]
    places = []
    for along in (SIDE / 4, 3 * SIDE / 4):
        along += rng.uniform(-3, 3) if look.free else 0
        across = middle + _shift(rng, look)
        places.append((along, across) if attributes.relation == "left of" else (across, along))
    return places


def _shift(rng: np.random.Generator, look: Look) -> float:
    return float(rng.uniform(-10, 10) if look.free else LATTICE * rng.integers(-2, 3))


def _radius(attributes: Attributes, rng: np.random.Generator, look: Look) -> float:
    if look.free:
        return float(rng.uniform(*((9.5, 12.0) if attributes.relation else (12.0, 16.0))))
    return float(rng.choice((10.0, 12.0) if attributes.relation else (12.0, 16.0)))


def _pick(rng: np.random.Generator, names: tuple[str, ...]) -> str:
    return names[int(rng.integers(len(names)))]
