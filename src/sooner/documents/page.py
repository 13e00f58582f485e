"""A page of a document: its picture, the resolution of that, and, in a PDF, its text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from ..checks import check_number
from ..errors import SoonerError
from .regions import Box, PageDraft, clipped

Picture = np.ndarray
"""RGB, `[height, width, 3]`, uint8."""


@dataclass(frozen=True)
class Line:
    """Text that stands on one line, without a gap in it as between columns.

    Attributes:
        text: words with single spaces between them, superscripts in `<sup>`.
        bbox: in pixels.
        size: of its letters, in pixels.
        confidence: of whoever read it that it is right, from 0 to 1.
        bold: all of its letters are in a bold font, but for a sign or two.
        mono: most of its letters are in a font for typewriters and code; then blanks are as many
            as there is room for.
        angle: degrees clockwise by which it is turned away from left-to-right.
    """

    text: str
    bbox: Box
    size: float
    confidence: float = 1.0
    bold: bool = False
    mono: bool = False
    angle: int = 0


@dataclass(frozen=True)
class PageText:
    """The text layer that a PDF page has.

    Attributes:
        lines: as the file lists them, which is mostly the reading order.
        garbled: share of characters without a meaning, from 0 to 1: replacements, characters for
            private use, and such that the font maps to nothing.
        coverage: share of the ink on the picture that the lines cover, from 0 to 1, drawings and
            photos left out unless they fill the page as a scan does.
        illustrations: boxes of raster pictures on the page, in pixels of its picture.
        tables: boxes of the cells of each table whose cells are drawn.
        note: what of the text was left out; one line.
    """

    lines: list[Line] = field(default_factory=list)
    garbled: float = 0.0
    coverage: float = 0.0
    illustrations: list[Box] = field(default_factory=list)
    tables: list[list[Box]] = field(default_factory=list)
    note: str = ""

    @property
    def problem(self) -> str:
        """Why the layer is not good enough to be used; empty if it is."""
        if not self.lines:
            return "no text layer"
        turned = sum(len(line.text) for line in self.lines if line.angle)
        if turned > MAX_TURNED * sum(len(line.text) for line in self.lines):
            return "text layer does not run from left to right"
        if self.garbled > MAX_GARBLED:
            return f"text layer is garbage: {self.garbled:.0%} of its characters have no meaning"
        if self.coverage < MIN_COVERAGE:
            return f"text layer covers {self.coverage:.0%} of what is on the page"
        return ""


MAX_TURNED, MAX_GARBLED, MIN_COVERAGE = 0.6, 0.05, 0.5

NO_MEANING = "\ufffd"
"""Replacement for a character that a font does not map to Unicode."""

INK = 48
"""Difference in brightness to the paper from which a pixel is ink."""


@dataclass(frozen=True)
class Page:
    """A page as a picture, with its text layer if it has one.

    Attributes:
        source: file it is from.
        number: from 1.
        picture: upright, `[height, width, 3]`, uint8 RGB.
        native: width and height in the file's own unit: points of a PDF, pixels of a picture.
        of: pages that the document has.
        text: the text layer of a PDF; `None` for pictures.
        notes: what was done to it that should be known, such as a turn.
    """

    source: Path
    number: int
    picture: Picture
    native: tuple[float, float] = (0.0, 0.0)
    of: int = 1
    text: PageText | None = None
    notes: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        return int(self.picture.shape[1])

    @property
    def height(self) -> int:
        return int(self.picture.shape[0])

    @property
    def size(self) -> tuple[int, int]:
        return self.width, self.height

    @property
    def is_blank(self) -> bool:
        """Whether nothing is drawn on it."""
        few = self.picture[::3, ::3]
        return int(few.max()) - int(few.min()) < INK

    def crop(self, bbox: Sequence[float], margin: int = 0) -> Picture:
        """Returns a part of the picture with `margin` pixels around it, cut off at the page's
        edges.

        Raises:
            SoonerError: the box is not on the page.
        """
        x0, y0, x1, y1 = bbox
        wide = (x0 - margin, y0 - margin, x1 + margin, y1 + margin)
        left, top, right, bottom = (round(edge) for edge in clipped(wide, *self.size))
        if right <= left or bottom <= top:
            raise SoonerError(
                f"box {tuple(round(edge) for edge in bbox)} is not on page {self.number} of "
                f"'{self.source.name}' ({self.width} x {self.height} px)"
            )
        return self.picture[top:bottom, left:right]


MIN_SIDE, MAX_SIDE, MAX_PIXELS = 8, 16_000, 100_000_000
"""Shortest and longest side of a readable picture, and most pixels that fit into memory."""

LARGE = 4000
"""Pixels of the longer side of a PDF's page that would be larger than that: a poster, or a plan."""

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

    def scale(self, width: float, height: float, dpi: float) -> float:
        """Returns the factor for a page of that size, whose unit is `dpi` an inch; 0 is unknown."""
        if self.within is not None:
            return min(self.within[0] / max(width, 1e-6), self.within[1] / max(height, 1e-6))
        if self.longest is not None:
            return self.longest / max(width, height, 1e-6)
        return self.dpi / dpi if dpi else 1.0

    def of_pdf(self, width: float, height: float) -> float:
        """Returns pixels a point for such a page; fewer where no size was given and it would be
        too large."""
        scale = self.scale(width, height, POINTS)
        if self.within or self.longest or not is_too_large(width * scale, height * scale):
            return scale
        return LARGE / max(width, height)

    def of_picture(self, width: int, height: int, dpi: float) -> float:
        """Returns the factor for a picture of that size in pixels: at most 1, unless it shall fit
        `within`, and less where no size was given and it would be too large."""
        scale = self.scale(width, height, dpi)
        if self.within:
            return scale
        limit = min(MAX_SIDE / max(width, height), math.sqrt(MAX_PIXELS / (width * height)))
        return min(scale, 1.0 if self.longest else min(limit, 1.0))


def is_too_large(width: float, height: float) -> bool:
    """Returns whether a picture of so many pixels is more than memory is good for."""
    return round(max(width, height)) > MAX_SIDE or round(width * height) > MAX_PIXELS


def check_size(width: float, height: float, scale: float, finest: float) -> None:
    """Refuse a page that is too small to hold text, or whose picture is too large.

    Args:
        width: in the page's own unit, as the height is.
        scale: pixels of its picture a unit.
        finest: scale at most at which a page is judged to be small: drawn larger, a dot is a dot.

    Raises:
        SoonerError: says its size, as in "is 4 x 4 px".
    """
    small = min(scale, finest)
    if min(width, height) * small < MIN_SIDE:
        size = f"{width * small:.0f} x {height * small:.0f} px"
        raise SoonerError(f"is {size}, too small to hold text (at least {MIN_SIDE} px a side)")
    if is_too_large(width * scale, height * scale):
        raise SoonerError(
            f"is {width * scale:.0f} x {height * scale:.0f} px, more than {MAX_SIDE} px a side or "
            f"{MAX_PIXELS // 1_000_000} million in all; lower the dpi or the longest side"
        )


@dataclass(frozen=True)
class BrokenPage:
    """A page, or a whole document, that can't be read.

    Attributes:
        source: the file.
        number: of the page; 0 if it is about the document.
        reason: what is wrong, in one line.
    """

    source: Path
    number: int
    reason: str

    @property
    def error(self) -> SoonerError:
        """Returns the error to raise where a broken page shall stop everything."""
        page = f", page {self.number}" if self.number else ""
        return SoonerError(f"'{self.source}'{page}: {self.reason}")


BLANK = "no text found on the page"
"""Reason of an empty draft of a blank page, which is no failure."""


class PageDrafter(Protocol):
    """Writes a draft of a page: fast, approximate (the pipeline `q_phi` of section 3.1).

    Attributes:
        name: for reports.
    """

    name: str

    def __call__(self, page: Page) -> PageDraft:
        """Returns a draft with boxes in pixels of `page.picture`; with a reason where there is
        none.

        Raises:
            SoonerError: something that would be wrong with any page, such as a missing package.
        """
        ...
