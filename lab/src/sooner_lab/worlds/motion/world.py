"""The motion world: shapes that drift and bounce over a still, textured wall.

A clip is a pure function of (seed, index). Everything that moves does so at a constant velocity
of whole pixels a frame and bounces at the walls, so nine frames determine the other 24. What
they don't determine is the sensor's grain: noise drawn anew for every frame, which keeps the
distribution of a video token from being a single spike.

Lengths are pixels, times are frames, positions are (x, y) of a shape's centre.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SHAPES = ("circle", "square", "triangle")
COLOURS = {
    "red": (215, 40, 40),
    "green": (45, 170, 65),
    "blue": (50, 85, 220),
    "yellow": (240, 210, 50),
}
BACKGROUNDS = {"slate": (92, 100, 112), "sand": (186, 172, 148), "plum": (120, 92, 118)}

FRAMES, PREFIX = 33, 9
HEIGHT, WIDTH = 40, 48
TEST_SEED = 10_007  # a seed whose clips no recipe trains on; those of recipes are small
RADIUS = 6
# Shapes start this many pixels apart. A shape then reaches a wall only after a multiple of four
# frames: in every group of four that a video tokenizer makes, it moves by just one such step.
LATTICE = 4
TEXTURE = 12.0  # standard deviation of the wall's lightness, in grey levels
BLOTCH, GRAIN = 0.25, 0.75  # standard deviations of coarse and of fine sensor noise
_CELL = 8  # pixels from one knot of the wall's texture to the next
_BLOTCH_CELL = 4


@dataclass(frozen=True)
class Mover:
    """One shape: its centre in frame 0, and how far it moves a frame (-1, 0 or 1 an axis)."""

    kind: str
    colour: str
    start: tuple[int, int]
    velocity: tuple[int, int]

    def at(self, frame: int) -> tuple[int, int]:
        """The centre (x, y) in `frame`, bounces included."""
        x = _bounce(self.start[0], self.velocity[0], frame, WIDTH)
        return x, _bounce(self.start[1], self.velocity[1], frame, HEIGHT)


@dataclass(frozen=True)
class MotionClip:
    """A wall and one or two shapes of different colours; later ones pass in front."""

    background: str
    texture: int
    movers: tuple[Mover, ...]


def sample(rng: np.random.Generator) -> MotionClip:
    """Draw a clip whose shapes start on a lattice."""
    count = 1 + int(rng.random() < 0.5)
    colours = rng.choice(list(COLOURS), size=count, replace=False)
    movers = []
    for colour in colours:
        # Of the nine velocities the fifth is standing still.
        way = int(rng.choice([0, 1, 2, 3, 5, 6, 7, 8]))
        start = (
            RADIUS + LATTICE * int(rng.integers((WIDTH - 2 * RADIUS) // LATTICE + 1)),
            RADIUS + LATTICE * int(rng.integers((HEIGHT - 2 * RADIUS) // LATTICE + 1)),
        )
        kind = str(rng.choice(SHAPES))
        movers.append(Mover(kind, str(colour), start, (way % 3 - 1, way // 3 - 1)))
    background = str(rng.choice(list(BACKGROUNDS)))
    return MotionClip(background, int(rng.integers(2**31)), tuple(movers))


def film(
    seed: int, index: int, frames: Sequence[int] | None = None
) -> tuple[MotionClip, np.ndarray]:
    """A clip and its frames, grain included: a pure function of its arguments."""
    rng = np.random.default_rng((seed, index))
    drawn = sample(rng)
    return drawn, render(drawn, rng, frames)


def render(
    clip: MotionClip,
    rng: np.random.Generator | None,
    frames: Sequence[int] | None = None,
) -> np.ndarray:
    """Draw frames of a clip.

    Args:
        rng: of the grain; None draws none.
        frames: which frames, 0..`FRAMES`-1; None is all of them.

    Returns:
        uint8 array `[frames, HEIGHT, WIDTH, 3]`, RGB.
    """
    indices = list(range(FRAMES) if frames is None else frames)
    pixels = np.repeat(wall(clip)[None], len(indices), axis=0)  # [frames, h, w, 3]
    for mover in clip.movers:
        cover = np.stack([_cover(mover, frame) for frame in indices])[..., None]
        pixels += cover * (np.array(COLOURS[mover.colour], np.float32) - pixels)
    if rng is not None:
        pixels += _noise(rng, len(indices))
    return (np.clip(pixels, 0, 255) + 0.5).astype(np.uint8)


def wall(clip: MotionClip) -> np.ndarray:
    """The background alone: float32 `[HEIGHT, WIDTH, 3]`, grey levels 0..255."""
    rng = np.random.default_rng(clip.texture)
    knots = rng.standard_normal((1, HEIGHT // _CELL + 1, WIDTH // _CELL + 1))
    light = TEXTURE * _enlarge(knots.astype(np.float32), _CELL)[0]  # [h, w]
    return np.array(BACKGROUNDS[clip.background], np.float32) + light[..., None]


def _noise(rng: np.random.Generator, frames: int) -> np.ndarray:
    shape = (frames, HEIGHT // _BLOTCH_CELL + 1, WIDTH // _BLOTCH_CELL + 1)
    blotches = _enlarge(rng.standard_normal(shape, dtype=np.float32), _BLOTCH_CELL)
    fine = rng.standard_normal((frames, HEIGHT, WIDTH), dtype=np.float32)
    return (BLOTCH * blotches + GRAIN * fine)[..., None]  # [frames, h, w, 1]


def _enlarge(knots: np.ndarray, cell: int) -> np.ndarray:
    """Bilinear interpolation of `[n, rows + 1, columns + 1]` knots to `[n, HEIGHT, WIDTH]`."""
    for axis, size in ((1, HEIGHT), (2, WIDTH)):
        place = (np.arange(size, dtype=np.float32) + 0.5) / cell
        low = place.astype(int)
        share = (place - low).reshape([-1 if a == axis else 1 for a in range(3)])
        knots = knots.take(low, axis) * (1 - share) + knots.take(low + 1, axis) * share
    return knots


def _bounce(start: int, velocity: int, frame: int, side: int) -> int:
    """Position on one axis after `frame` frames between two walls."""
    room = side - 2 * RADIUS
    # Unfold the mirrors: on a line of period 2 * room the shape just keeps going.
    way = (start - RADIUS + velocity * frame) % (2 * room)
    return RADIUS + (2 * room - way if way > room else way)


def _cover(mover: Mover, frame: int) -> np.ndarray:
    """How much of each pixel the shape covers, 0..1: `[HEIGHT, WIDTH]`."""
    x, y = mover.at(frame)
    xs = np.arange(WIDTH, dtype=np.float32)[None, :] + 0.5 - x
    ys = np.arange(HEIGHT, dtype=np.float32)[:, None] + 0.5 - y
    if mover.kind == "circle":
        outside = np.hypot(xs, ys) - RADIUS
    elif mover.kind == "square":
        outside = np.maximum(np.abs(xs), np.abs(ys)) - 0.85 * RADIUS
    else:  # a triangle that stands on its base
        slope = (2 * np.abs(xs) - (ys + RADIUS)) / np.float32(5**0.5)
        outside = np.maximum(slope, ys - RADIUS)
    return np.clip(0.5 - outside, 0, 1)
