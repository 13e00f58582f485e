"""How large a page's picture shall be."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import SoonerError

LEAST_SIDE, MOST_SIDE, MOST_PIXELS = 8, 16_000, 100_000_000
"""Sides of a picture that is worth reading, and pixels that fit into memory."""

POINTS = 72.0
"""Points of a PDF in an inch."""


@dataclass(frozen=True)
class Resolution:
    """Size of the pictures that pages are read as.

    PDF pages are drawn at that size. Pictures are only ever made smaller, as more pixels show
    nothing more.

    Args:
        dpi: pixels an inch. A picture that does not say how large it is stays as it is.
        longest: pixels of the longer side, instead of `dpi`.

    Raises:
        SoonerError: a number that is not above 0.
    """

    dpi: float = 200.0
    longest: int | None = None

    def __post_init__(self) -> None:
        for name in ("dpi", "longest"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise SoonerError(f"{name} is {value}; it must be above 0")

    def of_pdf(self, width: float, height: float) -> float:
        """Pixels a point for a page of that size in points."""
        if self.longest is not None:
            return self.longest / max(width, height, 1e-6)
        return self.dpi / POINTS

    def of_picture(self, width: int, height: int, dpi: float) -> float:
        """Factor, at most 1, for a picture of that size in pixels, with `dpi` 0 for unknown."""
        if self.longest is not None:
            return min(1.0, self.longest / max(width, height))
        return min(1.0, self.dpi / dpi) if dpi else 1.0


def size_problem(width: float, height: float, way_out: str = "") -> str:
    """What is wrong with a picture of that size; mostly nothing."""
    size = f"{width:.0f} x {height:.0f} px"
    if min(width, height) < LEAST_SIDE:
        return f"is {size}, too small to hold text (at least {LEAST_SIDE} px a side)"
    if max(width, height) > MOST_SIDE:
        return f"is {size}, more than {MOST_SIDE} px a side{way_out}"
    if width * height > MOST_PIXELS:
        return f"is {size}, more than {MOST_PIXELS // 1_000_000} million pixels{way_out}"
    return ""
