"""The resolution at which pages are rendered."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..checks import check_number
from ..errors import SoonerError

MIN_SIDE, MAX_SIDE, MAX_PIXELS = 8, 16_000, 100_000_000
"""Shortest and longest side of a readable picture, and most pixels that fit into memory."""

LARGE = 4000
"""Pixels of the longer side of a page that would be larger than that: a poster, or a plan."""

FINEST = 300.0 / 72.0
"""Pixels a point at which a page is judged to be too small: drawn larger, a dot is still a dot."""

POINTS = 72.0
"""Points of a PDF in an inch."""


@dataclass(frozen=True)
class Resolution:
    """Size of the pictures that pages are read as.

    PDF pages are drawn at that size. Pictures are only made smaller otherwise, as more pixels show
    nothing more. Width and height keep their ratio.

    Args:
        dpi: pixels an inch. A picture that does not say how large it is stays as it is.
        longest: pixels of the longer side, instead of `dpi`.
        within: width and height that a page shall just fit into, instead of `dpi`, for a model that
            reads pages of one size. Pictures are made larger for that, too.

    Raises:
        SoonerError: a number that is not above 0.
    """

    dpi: float = 200.0
    longest: int | None = None
    within: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        check_number("dpi", self.dpi, above=True)
        if self.longest is not None:
            check_number("longest", self.longest, above=True)
        if self.within is not None and min(self.within) < 1:
            raise SoonerError(f"within is {self.within}; both sides must be 1 or more")

    def of_pdf(self, width: float, height: float) -> float:
        """Returns pixels a point for a page of that size in points."""
        if self.within is not None:
            return self._fit(width, height)
        if self.longest is not None:
            return self.longest / max(width, height, 1e-6)
        return self.dpi / POINTS

    def that_fits(self, width: float, height: float) -> float:
        """Returns the pixels a point of such a page; fewer where a size was not asked for and
        would be too large.
        """
        scale = self.of_pdf(width, height)
        is_explicit = self.within is not None or self.longest is not None
        if is_explicit or not is_too_large(width * scale, height * scale):
            return scale
        return LARGE / max(width, height)

    def of_picture(self, width: int, height: int, dpi: float) -> float:
        """Returns factor for a picture of that size in pixels, with `dpi` 0 for unknown; at most 1,
        unless it shall fit, and less where the picture would be too large.
        """
        if self.within is not None:
            return self._fit(width, height)
        if self.longest is not None:
            return min(1.0, self.longest / max(width, height))
        factor = min(1.0, self.dpi / dpi) if dpi else 1.0
        limit = min(MAX_SIDE / max(width, height), math.sqrt(MAX_PIXELS / (width * height)))
        return min(factor, limit)

    def _fit(self, width: float, height: float) -> float:
        assert self.within is not None
        return min(self.within[0] / max(width, 1e-6), self.within[1] / max(height, 1e-6))


def size_problem(width: float, height: float, way_out: str = "") -> str:
    """Returns why a picture of that size can't be read; empty if it can."""
    size = f"{width:.0f} x {height:.0f} px"
    if min(width, height) < MIN_SIDE:
        return f"is {size}, too small to hold text (at least {MIN_SIDE} px a side)"
    if not is_too_large(width, height):
        return ""
    if max(width, height) > MAX_SIDE:
        return f"is {size}, more than {MAX_SIDE} px a side{way_out}"
    return f"is {size}, more than {MAX_PIXELS // 1_000_000} million pixels{way_out}"


def is_too_large(width: float, height: float) -> bool:
    """Returns whether a picture of so many pixels is more than memory is good for."""
    return max(width, height) > MAX_SIDE or width * height > MAX_PIXELS
