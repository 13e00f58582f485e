"""A page of a document: its picture and, in a PDF, its text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

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
        if self.garbled > MAX_GARBLED:
            return f"text layer is garbage: {self.garbled:.0%} of its characters have no meaning"
        if self.coverage < MIN_COVERAGE:
            return f"text layer covers {self.coverage:.0%} of what is on the page"
        return ""


MAX_GARBLED, MIN_COVERAGE = 0.05, 0.5

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
