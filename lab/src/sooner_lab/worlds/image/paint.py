"""How the world's pictures look: textured ground, outlined shapes, grain everywhere.

The grain is necessary: each 4 x 4 patch becomes one code of the miniature, and without grain a
picture's codes would be nearly certain given its caption, which no speculative decoder could find
hard.
"""

from __future__ import annotations

import numpy as np

SIDE = 64
OUTLINE = 1.3  # half the outline's width, in pixels
_AXIS = np.arange(SIDE) + 0.5
X, Y = np.meshgrid(_AXIS, _AXIS)  # [side, side] each


def ground(
    rng: np.random.Generator, colour: np.ndarray, texture: tuple[float, float]
) -> np.ndarray:
    """A background in about `colour`, float `[side, side, 3]`: a soft light and a texture.

    `texture` is the least and the most strength of the texture.
    """
    base = colour + rng.normal(0, 5, 3)
    return base * (1 + _light(rng, 0.18) + _texture(rng, texture))[..., None]


def distance(form: str, centre: tuple[float, float], radius: float) -> np.ndarray:
    """Signed distance in pixels to a form's border, negative inside; float `[side, side]`."""
    x, y = X - centre[0], Y - centre[1]
    if form == "circle":
        return np.hypot(x, y) - radius
    if form == "square":
        return _box(x, y, 0.86 * radius, 0.86 * radius)
    if form == "triangle":
        # Three half-planes about a point a little below the box's middle.
        return np.maximum(np.abs(x) * 0.866 - (y + 0.95 * radius) * 0.5, y - 0.75 * radius)
    if form == "cross":
        wide, thin = radius, 0.36 * radius
        return np.minimum(_box(x, y, wide, thin), _box(x, y, thin, wide))
    raise ValueError(f"form is '{form}'; it is 'circle', 'square', 'triangle' or 'cross'")


def stamp(
    canvas: np.ndarray, border: np.ndarray, rng: np.random.Generator, colour: np.ndarray
) -> None:
    """Paint a shape with a dark outline onto `canvas` in place, antialiased.

    The outline keeps codes few: without it each pair of shape and ground has its own edges.
    """
    fill = (colour + rng.normal(0, 5, 3)) * (1 + _light(rng, 0.15))[..., None]
    ink = 0.12 * colour
    inside = np.clip(0.5 - border, 0, 1)[..., None]  # [side, side, 1]
    edge = np.clip(0.5 + OUTLINE - np.abs(border), 0, 1)[..., None]
    canvas[:] = canvas * (1 - inside) + fill * inside
    canvas[:] = canvas * (1 - edge) + ink * edge


def finish(canvas: np.ndarray, rng: np.random.Generator, grain: float) -> np.ndarray:
    """Add coarse and fine grain of a strength, and round to uint8 `[side, side, 3]`."""
    coarse = _smooth(rng, 22)[..., None] * rng.uniform(0.06, 0.16) * grain
    tint = np.stack([_smooth(rng, 18) for _ in range(3)], axis=-1) * 0.05 * grain
    fine = rng.normal(0, 4.0, canvas.shape) * grain
    return np.clip(canvas * (1 + coarse + tint) + fine + 0.5, 0, 255).astype(np.uint8)


def _box(x: np.ndarray, y: np.ndarray, wide: float, high: float) -> np.ndarray:
    return np.maximum(np.abs(x) - wide, np.abs(y) - high)


def _light(rng: np.random.Generator, maximum: float) -> np.ndarray:
    """A linear shade in a random direction, `[side, side]`, at most `maximum` at the corners."""
    angle, size = rng.uniform(0, 2 * np.pi), rng.uniform(0, maximum)
    return size * (np.cos(angle) * (X - SIDE / 2) + np.sin(angle) * (Y - SIDE / 2)) / (SIDE / 2)


def _texture(rng: np.random.Generator, strengths: tuple[float, float]) -> np.ndarray:
    """Stripes, checks or blotches of a random size, direction and strength, `[side, side]`."""
    kind, strength = rng.integers(3), rng.uniform(*strengths)
    angle, period, shift = rng.uniform(0, np.pi), rng.uniform(7, 18), rng.uniform(0, 2 * np.pi, 2)
    along = 2 * np.pi / period * (np.cos(angle) * X + np.sin(angle) * Y) + shift[0]
    across = 2 * np.pi / period * (np.cos(angle) * Y - np.sin(angle) * X) + shift[1]
    if kind == 0:
        return strength * np.sin(along)
    if kind == 1:
        return 1.4 * strength * np.sin(along) * np.sin(across)
    return strength * _smooth(rng, int(rng.integers(6, 14)))


def _smooth(rng: np.random.Generator, cells: int) -> np.ndarray:
    """Noise of unit variance on `cells` x `cells` points, blended bilinearly, `[side, side]`."""
    points = rng.normal(0, 1, (cells + 1, cells + 1))
    at = np.linspace(0, cells - 1e-6, SIDE)
    low, part = at.astype(int), at % 1
    weights = np.zeros((SIDE, cells + 1))  # each row blends two neighbours
    weights[np.arange(SIDE), low] = 1 - part
    weights[np.arange(SIDE), low + 1] = part
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    return weights @ points @ weights.T
