"""The raster of visual tokens that a model lays over a page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from ...documents import Page
from ...documents.boxes import Box, clipped, scaled
from ...documents.page import Picture

SLACK = 0.125
"""Share of a cell's side by which a box may reach into a cell that is not its own: drafters draw
boxes with some air around the ink."""


@dataclass(frozen=True)
class Cells:
    """A page cut into squares, each of which one visual token sees.

    Attributes:
        side: of a square, in pixels of the page as the model sees it.
        size: width and height of the page as the model sees it, multiples of `side`.
        least: pixels that a picture must have so that the processor does not enlarge it.
    """

    side: int
    size: tuple[int, int]
    least: int = 0

    def picture(self, page: Page) -> Picture:
        """The page as the model sees it, `[height, width, 3]` uint8."""
        if page.size == self.size:
            return page.picture
        return np.array(Image.fromarray(page.picture).resize(self.size, Image.Resampling.BICUBIC))

    def crop(self, picture: Picture, bbox: Box, size: tuple[int, int]) -> Picture:
        """The squares that a box lies in, so that they look as they do on the page.

        Where they are fewer pixels than `least`, white ones follow to the right, or below those
        that are wide enough: a picture that the processor enlarges would look different.

        Args:
            picture: from `picture`.
            bbox: in pixels of a page of `size`, on the page.
        """
        box = scaled(bbox, self.size[0] / size[0], self.size[1] / size[1])
        left, top, right, bottom = self._around(clipped(box, *self.size))
        part = picture[top:bottom, left:right]
        missing = math.ceil((self.least - part.shape[0] * part.shape[1]) / self.side**2)
        return part if missing <= 0 else self._filled(part, missing)

    def _around(self, box: Box) -> tuple[int, int, int, int]:
        found = []
        for low, high, most in zip(box[:2], box[2:], self.size, strict=True):
            slack = min(SLACK * self.side, (high - low) / 4)
            first = min(math.floor((low + slack) / self.side), most // self.side - 1)
            last = max(math.ceil((high - slack) / self.side), first + 1)
            found.append((first * self.side, min(last * self.side, most)))
        (left, right), (top, bottom) = found
        return left, top, right, bottom

    def _filled(self, part: Picture, missing: int) -> Picture:
        """With at least `missing` white squares more, along the shorter side."""
        down, across = (length // self.side for length in part.shape[:2])
        if across <= self.size[0] // self.side - math.ceil(missing / down):
            across += math.ceil(missing / down)
        else:
            down += math.ceil(missing / across)
        whole = np.full((down * self.side, across * self.side, 3), 255, dtype=np.uint8)
        whole[: part.shape[0], : part.shape[1]] = part
        return whole


def cells_of(processor: Any, inputs: Mapping[str, Any]) -> Cells | None:
    """The raster over the one picture of some inputs; `None` for processors that have none.

    Args:
        processor: whose image processor has `patch_size` and `merge_size`, as Qwen's families'.
        inputs: what it made of a page.
    """
    grid = inputs.get("image_grid_thw")
    image = getattr(processor, "image_processor", None)
    patch, merge = getattr(image, "patch_size", None), getattr(image, "merge_size", None)
    if grid is None or len(grid) != 1 or not isinstance(patch, int) or not isinstance(merge, int):
        return None
    _, down, across = (int(count) for count in grid[0])
    return Cells(patch * merge, (across * patch, down * patch), _least(image))


def _least(image: Any) -> int:
    """Pixels below which a picture is enlarged; 0 for unknown."""
    size = getattr(image, "size", None)
    try:
        return int(size["shortest_edge"])  # type: ignore[index]
    except (KeyError, TypeError, AttributeError):
        return 0
