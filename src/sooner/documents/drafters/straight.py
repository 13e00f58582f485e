"""Scans that lie on their side, on their head or askew: how they lie, and set straight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from ..page import Picture
from ..regions import Box, around

LOOKED_AT = 640
"""Pixels of a page's longer side on which lines are looked for."""

LINES = 9
"""The longest lines of a page, whose direction is looked at."""

LONG, PART = 5.0, 5.0
"""Heights of a line from which its slope is believed, and of the part of it that is looked at: a
longer one would be squeezed."""

MIN_SKEW, MAX_SKEW = 0.4, 12.0
"""Degrees of a slope that is straightened; a steeper one is not that of a page."""

CLEAR = 0.1
"""Share of the classifier's votes for lines on their heads up to which a page is upright."""

READ, READABLE, SURER = 6, 0.7, 0.1
"""Lines that are read both ways, the score of one that can be read, and by how much it has to be
better one way."""


@dataclass(frozen=True)
class Lie:
    """How a page lies.

    Attributes:
        turn: degrees by which it is to be turned clockwise: 0, 90, 180 or 270.
        skew: degrees by which its lines then fall to the right; 0 for those that hardly do.
    """

    turn: int = 0
    skew: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.turn or self.skew)

    def __str__(self) -> str:
        done = [f"turned by {self.turn} degrees"] if self.turn else []
        done += [f"straightened by {abs(self.skew):.1f} degrees"] if self.skew else []
        return f"{' and '.join(done)} to be read"

    def straight(self, picture: Picture) -> Picture:
        """Returns the picture set straight, corners filled with the colour of the paper."""
        whole = np.rot90(picture, -self.turn // 90)
        if not self.skew:
            return np.ascontiguousarray(whole)
        paper = tuple(int(channel) for channel in np.median(whole[::9, ::9].reshape(-1, 3), axis=0))
        image = Image.fromarray(np.ascontiguousarray(whole))
        turned = image.rotate(
            self.skew, Image.Resampling.BICUBIC, expand=True, fillcolor=paper
        )  # counterclockwise
        return np.asarray(turned)

    def back(self, bbox: Box, straight: tuple[int, int], size: tuple[int, int]) -> Box:
        """Returns a box of the straight picture on the picture as it lies.

        Args:
            bbox: of the picture set straight.
            straight: width and height of that.
            size: width and height of the picture as it lies.
        """
        angle = math.radians(self.turn - self.skew)
        cos, sin = math.cos(angle), math.sin(angle)
        x0, y0, x1, y1 = bbox
        points = []
        for x, y in ((x0, y0), (x1, y0), (x1, y1), (x0, y1)):
            x, y = x - straight[0] / 2, y - straight[1] / 2  # from the middle, which stays
            x, y = x * cos + y * sin + size[0] / 2, y * cos - x * sin + size[1] / 2
            points.append((x, y, x, y))
        x0, y0, x1, y1 = around(points)
        return max(x0, 0.0), max(y0, 0.0), min(x1, float(size[0])), min(y1, float(size[1]))


def lie_of(picture: Picture, engine: Any) -> Lie:
    """Returns how a page lies, by the slopes of its lines and by rapidocr's models.

    Args:
        picture: of a page, RGB.
        engine: `rapidocr.RapidOCR`.
    """
    scale = min(1.0, LOOKED_AT / max(picture.shape[:2]))
    image = Image.fromarray(picture)
    small = image.resize((max(round(image.width * scale), 1), max(round(image.height * scale), 1)))
    result = engine(_bgr(small), use_det=True, use_cls=False, use_rec=False)
    boxes = getattr(result, "boxes", None)
    if boxes is None or not len(boxes):
        return Lie()
    corners = np.asarray(boxes, dtype=float).reshape(-1, 4, 2) / scale  # [lines, 4, 2], in a circle
    sides = np.stack([corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 1]], axis=1)
    lengths = np.linalg.norm(sides, axis=2)  # [lines, 2]
    longer = lengths.argmax(axis=1)
    along = np.take_along_axis(sides, longer[:, None, None], axis=1)[:, 0]  # [lines, 2]
    is_tall = np.abs(along[:, 1]) > np.abs(along[:, 0])
    weights = lengths.max(axis=1) - lengths.min(axis=1)  # a short word has no direction
    is_sideways = bool(weights[is_tall].sum() > weights[~is_tall].sum())
    chosen = is_tall == is_sideways
    # From left to right, or from the bottom to the top.
    is_forward = along[chosen, 1] < 0 if is_sideways else along[chosen, 0] > 0
    forward = np.where(is_forward, 1, -1)[:, None]
    lines = _Lines(
        corners[chosen].mean(axis=1),
        along[chosen] * forward,
        lengths[chosen].min(axis=1),
    )
    parts = [lines.part(image, line) for line in np.argsort(-lines.lengths)[:LINES]]
    is_flipped = _is_flipped(parts, engine, is_sideways)
    return Lie(90 * is_sideways + 180 * is_flipped, lines.skew(90 * is_sideways))


@dataclass(frozen=True)
class _Lines:
    """Lines of a page in one of the two directions that they may have.

    Attributes:
        middles: `[lines, 2]`.
        along: from a line's beginning to its end, `[lines, 2]`.
        heights: `[lines]`.
    """

    middles: np.ndarray
    along: np.ndarray
    heights: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return np.linalg.norm(self.along, axis=1)

    def skew(self, turn: int) -> float:
        """Returns the median slope of long lines in degrees, once they are turned; weighted by
        length.
        """
        is_long = self.lengths > LONG * self.heights
        if not is_long.any():
            return 0.0
        slopes = np.degrees(np.arctan2(self.along[is_long, 1], self.along[is_long, 0])) + turn
        order = np.argsort(slopes)
        weights = np.cumsum(self.lengths[is_long][order])
        slope = float(slopes[order][np.searchsorted(weights, weights[-1] / 2)])
        return slope if MIN_SKEW <= abs(slope) <= MAX_SKEW else 0.0

    def part(self, image: Image.Image, line: int) -> Image.Image:
        """Returns the beginning of a line."""
        along, height = self.along[line], max(float(self.heights[line]), 1.0)
        length = max(float(np.linalg.norm(along)), 1.0)
        down = np.array([-along[1], along[0]]) * height / length
        start = self.middles[line] - along / 2 - down / 2
        share = min(1.0, PART * height / length)
        ends = (start, start + down, start + down + share * along, start + share * along)
        return image.transform(
            (max(round(share * length), 1), max(round(height), 1)),
            Image.Transform.QUAD,
            [float(value) for point in ends for value in point],
            Image.Resampling.BILINEAR,
        )


def _is_flipped(parts: Sequence[Image.Image], engine: Any, is_sideways: bool) -> bool:
    """Returns whether lines stand on their heads: the classifier's vote, and where that is not
    clear, what the recognition reads better.

    Args:
        is_sideways: either way is as likely as the other; else a page that nobody can read, as in a
            script that the model does not know, stays as it is.
    """
    results = [engine(_bgr(part), use_det=False, use_cls=True, use_rec=False) for part in parts]
    votes = [result.cls_res[0] for result in results]  # label, score
    flipped = sum(float(score) for label, score in votes if label == "180")
    share = flipped / max(sum(float(score) for _, score in votes), 1e-6)
    if share < CLEAR and not is_sideways:
        return False
    upright = _score(parts[:READ], engine)
    turned = _score([part.rotate(180) for part in parts[:READ]], engine)
    if abs(turned - upright) < SURER or max(turned, upright) < READABLE:
        return is_sideways and share > 0.5
    return turned > upright


def _score(parts: Sequence[Image.Image], engine: Any) -> float:
    """Returns how sure the recognition is of what it reads, from 0 to 1."""
    results = [engine(_bgr(part), use_det=False, use_cls=False, use_rec=True) for part in parts]
    scores = [
        float(result.scores[0]) if getattr(result, "scores", None) else 0.0 for result in results
    ]
    return sum(scores) / max(len(scores), 1)


def _bgr(image: Image.Image) -> np.ndarray:
    return np.ascontiguousarray(np.asarray(image)[:, :, ::-1])
