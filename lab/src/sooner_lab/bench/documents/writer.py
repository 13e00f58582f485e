"""Writes and draws full pages: two columns, tables, formulas, footnotes, with their ground truth.

A page is laid out in points (612 x 792) and drawn with DejaVu, which matplotlib brings along, at
any resolution. Each line knows where it stands, so that what a crop shows can be told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from sooner.documents import PageDraft, Region
from sooner.documents.regions import (
    FOOTNOTE,
    FORMULA,
    LIST_ITEM,
    SECTION_HEADER,
    TABLE,
    TEXT,
    TITLE,
    Box,
    around,
)

from . import wording

WIDTH, HEIGHT = 612, 792
MARGIN, GUTTER = 48, 18
POINT = 72
PAD = 2.0
"""Points around a line's letters that a region's box holds."""

KINDS = ("article", "report", "book", "notes")
"""Two columns with formulas and footnotes; tables of about 100 cells; one column; short lists."""

FACES = {
    "": "DejaVuSerif.ttf",
    "bold": "DejaVuSerif-Bold.ttf",
    "italic": "DejaVuSerif-Italic.ttf",
    "sans": "DejaVuSans.ttf",
}


@dataclass(frozen=True)
class WrittenLine:
    """A line as it is drawn.

    Attributes:
        text: its words; of a table a row, cells between tabs; of a formula LaTeX.
        box: in points.
        parts: what is drawn: x and y of the baseline in points, text, face, size in points.
    """

    text: str
    box: Box
    parts: tuple[tuple[float, float, str, str, float], ...]


@dataclass(frozen=True)
class WrittenRegion:
    """A block of a page; `rules` are lines of a table in points."""

    label: str
    lines: tuple[WrittenLine, ...]
    level: int = 0
    rules: tuple[Box, ...] = ()

    @property
    def box(self) -> Box:
        x0, y0, x1, y1 = around([line.box for line in self.lines])
        return x0 - PAD, y0 - PAD, x1 + PAD, y1 + PAD

    @property
    def text(self) -> str:
        """As a drafter without errors reads it."""
        return joined(self.label, [line.text for line in self.lines])


@dataclass(frozen=True)
class WrittenPage:
    """A page without wear; regions are in reading order."""

    number: int
    kind: str
    regions: tuple[WrittenRegion, ...]

    def truth(self, dpi: int) -> PageDraft:
        """Its regions with boxes in pixels."""
        scale, regions = dpi / POINT, []
        for order, one in enumerate(self.regions):
            place = tuple(scale * side for side in one.box)
            regions.append(Region(place, one.label, order, [one.text], one.level))  # type: ignore[arg-type]
        return PageDraft(regions, 0.0, "truth", pixels(dpi))

    def draw(self, dpi: int) -> np.ndarray:
        """Grey, `[height, width]` uint8."""
        scale = dpi / POINT
        image = Image.new("L", pixels(dpi), 255)
        pen = ImageDraw.Draw(image)
        for region in self.regions:
            for rule in region.rules:
                pen.rectangle([round(scale * side) for side in rule], fill=40)
            for line in region.lines:
                for x, y, text, face, size in line.parts:
                    pen.text(
                        (x * scale, y * scale), text, 0, _font(face, size * scale), anchor="ls"
                    )
        return np.asarray(image)


def pixels(dpi: int) -> tuple[int, int]:
    """Width and height of a page."""
    return round(WIDTH * dpi / POINT), round(HEIGHT * dpi / POINT)


def joined(label: str, lines: Sequence[str]) -> str:
    """Lines of a region as one text: rows and items stay lines, prose flows."""
    return ("\n" if label in (TABLE, LIST_ITEM) else " ").join(lines)


def write_page(kind: str, number: int, seed: int) -> WrittenPage:
    """A page of `KINDS`, always the same for the same arguments."""
    rng = np.random.default_rng([seed, KINDS.index(kind), number])
    return WrittenPage(number, kind, tuple(_Layout(rng, kind).fill()))


@lru_cache(maxsize=64)
def _font(face: str, size: float) -> ImageFont.FreeTypeFont:
    import matplotlib

    return ImageFont.truetype(
        Path(matplotlib.get_data_path()) / "fonts" / "ttf" / FACES[face], size
    )


def _wide(text: str, face: str, size: float) -> float:
    """Width in points, whatever the resolution."""
    return float(_font(face, 8 * size).getlength(text)) / 8


@dataclass
class _Layout:
    """Fills columns from the top; what does not fit any more ends the page."""

    rng: np.random.Generator
    kind: str
    found: list[WrittenRegion] = field(default_factory=list)

    def fill(self) -> list[WrittenRegion]:
        rng, kind = self.rng, self.kind
        size = {"article": 7.5, "report": 8.0, "book": 9.5, "notes": 9.0}[kind]
        y = self._lines(TITLE, wording.heading(rng, 3, 6), MARGIN, MARGIN + 16, 500, 15, "bold", 1)
        y += 12
        columns = 2 if kind in ("article", "notes") else 1
        wide = (WIDTH - 2 * MARGIN - (columns - 1) * GUTTER) / columns
        for column in range(columns):
            self._column(MARGIN + column * (wide + GUTTER), y, wide, size)
        return self.found

    def _column(self, x: float, y: float, wide: float, size: float) -> None:
        rng, kind = self.rng, self.kind
        foot = 30 if kind == "article" else 0
        end, block = HEIGHT - MARGIN - foot, 0
        while y < end - 5 * size:
            what = self._next(block, end - y)
            block += 1
            if what == "heading":
                y = self._lines(SECTION_HEADER, wording.heading(rng), x, y + 1.5 * size, wide,
                                size + 2.5, "bold", 2)  # fmt: skip
            elif what == "formula":
                y = self._formula(x + 0.2 * wide, y + size, size + 1)
            elif what == "table":
                y = self._table(x, y + 6, wide, size - 0.5, end)
            elif what == "list":
                y = self._list(x, y, wide, size, end)
            else:
                room = int((end - y) / (1.3 * size)) * wide / (size * 4.1)
                many = max(1, min(int(rng.integers(3, 8)), int(room / 14)))
                y = self._lines(TEXT, wording.prose(rng, many), x, y, wide, size)
            y += 0.9 * size
        if foot:
            note = f"{1 + len(self.found) % 9} {wording.prose(rng, 1)}"
            self._lines(FOOTNOTE, note, x, max(y, end), wide, size - 1.5)

    def _next(self, block: int, room: float) -> str:
        """What stands at a place of a column."""
        kind, chance = self.kind, self.rng.random()
        if kind == "report" and block in (1, 4) and room > 200:
            return "table"
        if block % 4 == 0 and kind != "book":
            return "heading"
        if kind == "article" and chance < 0.3:
            return "formula"
        if kind == "notes" and chance < 0.6:
            return "list"
        return "prose"

    def _lines(
        self, label: str, text: str, x: float, y: float, wide: float, size: float, face: str = "",
        level: int = 0,
    ) -> float:  # fmt: skip
        """Set a text in lines from `y` on; where the next thing may begin."""
        lines = self._wrapped(text, x, y, wide, size, face)
        self.found.append(WrittenRegion(label, tuple(lines), level))
        return lines[-1].box[3]

    def _wrapped(
        self, text: str, x: float, y: float, wide: float, size: float, face: str = ""
    ) -> list[WrittenLine]:
        said: list[str] = []
        for word in text.split():
            longer = f"{said[-1]} {word}" if said else word
            if said and _wide(longer, face, size) <= wide:
                said[-1] = longer
            else:
                said.append(word)
        lines = []
        for line in said:
            y += 1.3 * size
            box = (x, y - size, x + _wide(line, face, size), y + 0.3 * size)
            lines.append(WrittenLine(line, box, ((x, y, line, face, size),)))
        return lines

    def _list(self, x: float, y: float, wide: float, size: float, end: float) -> float:
        lines: list[WrittenLine] = []
        for _ in range(int(self.rng.integers(2, 6))):
            if y > end - 3 * size:
                break
            # One line an item, so that a line is an item's whole text.
            text = f"- {wording.heading(self.rng, 3, 6)}"
            (line, *_) = self._wrapped(text, x + 8, y, wide, size, "sans")
            lines.append(line)
            y = line.box[3]
        if lines:
            self.found.append(WrittenRegion(LIST_ITEM, tuple(lines)))
        return y

    def _formula(self, x: float, y: float, size: float) -> float:
        signs, parts, at = wording.formula(self.rng), [], x
        y += 1.3 * size
        for sign, place in signs:
            height = size * (0.65 if place else 1.0)
            down = {"": 0.0, "_": 0.25 * size, "^": -0.4 * size}[place]
            gap = 0.0 if place else 0.35 * size
            parts.append((at + gap, y + down, sign, "italic" if sign.isalpha() else "", height))
            at += gap + _wide(sign, "italic", height)
        box = (x, y - 1.1 * size, at, y + 0.5 * size)
        line = WrittenLine(wording.latex(signs), box, tuple(parts))
        self.found.append(WrittenRegion(FORMULA, (line,)))
        return y + 0.5 * size

    def _table(self, x: float, y: float, wide: float, size: float, end: float) -> float:
        columns = 7
        rows = min(15, int((end - y) / (1.7 * size)))
        if rows < 3:
            return y + size
        told, step, top = wording.table(self.rng, rows, columns), wide / columns, y
        lines, rules = [], [(x, y, x + wide, y + 0.6)]
        for cells in told:
            y += 1.7 * size
            parts = tuple(
                (x + 3 + column * step, y - 0.5 * size, text, "sans", size)
                for column, text in enumerate(cells)
            )
            lines.append(WrittenLine("\t".join(cells), (x, y - 1.6 * size, x + wide, y), parts))
            rules.append((x, y, x + wide, y + 0.6))
        rules += [(x + each * step, top, x + each * step + 0.6, y) for each in range(columns + 1)]
        self.found.append(WrittenRegion(TABLE, tuple(lines), rules=tuple(rules)))
        return y
