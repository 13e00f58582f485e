"""What a bad scan does to a page: skew, stains, blur, noise, and JPEG."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from sooner.documents.regions import Box


@dataclass(frozen=True)
class Wear:
    """How a page is degraded.

    Attributes:
        dpi: of the scan.
        jpeg: quality, 1 to 95.
        blur: standard deviation in pixels.
        skew: largest angle to either side, in degrees.
        stains: grey spots on it.
        merged: chance that a drafter's box is merged with the next one below it.
    """

    dpi: int = 100
    jpeg: int = 50
    blur: float = 0.6
    skew: float = 1.5
    stains: int = 3
    merged: float = 0.1

    @property
    def told(self) -> str:
        return (
            f"{self.dpi} dpi, JPEG {self.jpeg}, blur {self.blur:g} px, skew ±{self.skew:g}°, "
            f"{self.stains} stains, {self.merged:.0%} of boxes merged"
        )


def worn(picture: np.ndarray, wear: Wear, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """The scan `[height, width, 3]`, and the angle in degrees by which it is turned.

    Args:
        picture: grey, `[height, width]`, drawn at `wear.dpi`.
    """
    image = Image.fromarray(picture)
    angle = float(rng.uniform(-wear.skew, wear.skew))
    image = image.rotate(angle, Image.Resampling.BICUBIC, fillcolor=255)
    if wear.stains:
        image = _stained(image, wear.stains, rng)
    if wear.blur:
        image = image.filter(ImageFilter.GaussianBlur(wear.blur))
    packed = io.BytesIO()
    image.save(packed, "JPEG", quality=wear.jpeg)
    return np.asarray(Image.open(packed).convert("RGB")), angle


def turned(boxes: Sequence[Box], angle: float, size: tuple[int, int]) -> list[Box]:
    """Boxes on the turned page: those around their turned corners."""
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    across, down = size[0] / 2, size[1] / 2
    found = []
    for x0, y0, x1, y1 in boxes:
        corners = [(x - across, y - down) for x in (x0, x1) for y in (y0, y1)]
        xs = [cos * x + sin * y + across for x, y in corners]
        ys = [cos * y - sin * x + down for x, y in corners]
        found.append((min(xs), min(ys), max(xs), max(ys)))
    return found


def _stained(image: Image.Image, stains: int, rng: np.random.Generator) -> Image.Image:
    """Soft grey spots, and the letters under them paler."""
    width, height = image.size
    mask = Image.new("L", image.size, 0)
    pen = ImageDraw.Draw(mask)
    for _ in range(stains):
        x, y, r = rng.uniform(0, width), rng.uniform(0, height), rng.uniform(0.02, 0.08) * width
        pen.ellipse([x - r, y - r, x + r, y + r], fill=int(rng.integers(60, 130)))
    mask = mask.filter(ImageFilter.GaussianBlur(width / 120))
    return Image.composite(Image.new("L", image.size, 150), image, mask)
