"""The shapes' outlines: how far a pixel lies from the edge of a circle, square, star, ..."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def distance(shape: str, xs: np.ndarray, ys: np.ndarray, radius: float) -> np.ndarray:
    """Signed distance in pixels from the shape's edge, negative inside: [h, w]."""
    if shape == "circle":
        return np.hypot(xs, ys) - 0.95 * radius
    corners = CORNERS[shape] * np.float32(radius)
    nearest = np.full(np.broadcast_shapes(xs.shape, ys.shape), np.inf, dtype=np.float32)
    odd = np.zeros(nearest.shape, dtype=bool)
    for (ax, ay), (bx, by) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        ex, ey, px, py = bx - ax, by - ay, xs - ax, ys - ay
        along = np.clip((px * ex + py * ey) / (ex * ex + ey * ey), 0, 1)
        nearest = np.minimum(nearest, (px - ex * along) ** 2 + (py - ey * along) ** 2)
        if ey != 0:  # even-odd rule: count the edges that a ray to the right crosses
            odd ^= ((ay > ys) != (by > ys)) & (px < ex * py / ey)
    return np.where(odd, -1, 1) * np.sqrt(nearest)


def _ring(radii: Sequence[float]) -> np.ndarray:
    """Corners at even angles, the first on top: [corners, 2] in units of the shape's radius."""
    angles = 2 * np.pi * np.arange(len(radii)) / len(radii)
    return np.stack([np.sin(angles), -np.cos(angles)], axis=1) * np.asarray(radii)[:, None]


REACH = 1.15  # no shape's edge is further from its centre along x or y, in radii
_ARM = 0.34
CORNERS: dict[str, np.ndarray] = {
    "square": np.array([(-0.95, -0.95), (0.95, -0.95), (0.95, 0.95), (-0.95, 0.95)]),
    "triangle": _ring([1.15] * 3),
    "star": _ring([1.1, 0.42] * 5),
    "cross": np.array(
        [
            (-_ARM, -1), (_ARM, -1), (_ARM, -_ARM), (1, -_ARM), (1, _ARM), (_ARM, _ARM),
            (_ARM, 1), (-_ARM, 1), (-_ARM, _ARM), (-1, _ARM), (-1, -_ARM), (-_ARM, -_ARM),
        ]
    ),
}  # fmt: skip
