"""What a page is: words in their places, grouped into regions that are read in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import glyphs

UNIT = 16
"""Words begin at multiples of this many pixels, half a visual token's side."""
CELL = glyphs.LINE
"""Side of a visual token in pixels."""
LABELS = ("header", "title", "paragraph", "list", "table", "formula")


@dataclass(frozen=True)
class DrawnWord:
    """A word where it stands.

    Attributes:
        text: what it says; `-` is a list's bullet where `bullet` is set.
        mark: "," or "." close behind it, or "".
        row: line of the page, 0 at the top.
        unit: left edge in `UNIT`s.
        style: a key of `glyphs.SIZES`.
    """

    text: str
    mark: str
    row: int
    unit: int
    style: str = "text"
    bullet: bool = False

    @property
    def ink(self) -> str:
        return self.text + self.mark

    @property
    def left(self) -> int:
        return self.unit * UNIT

    @property
    def right(self) -> int:
        return self.left + glyphs.width(self.ink, self.style, self.bullet)

    @property
    def column(self) -> int:
        """Column of the visual token in which the word begins."""
        return self.left // CELL


@dataclass(frozen=True)
class DrawnRegion:
    """One block of a page.

    Attributes:
        label: one of `LABELS`.
        words: in reading order.
        pieces: the block's Markdown, token by token.
        rules: table rules as boxes in pixels, (left, top, right, bottom).
    """

    label: str
    words: tuple[DrawnWord, ...]
    pieces: tuple[str, ...]
    rules: tuple[tuple[int, int, int, int], ...] = ()

    @property
    def text(self) -> str:
        """The block as Markdown."""
        return join(self.pieces)

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Left, top, right, bottom in pixels."""
        boxes = [
            (word.left, word.row * CELL, word.right, (word.row + 1) * CELL) for word in self.words
        ]
        boxes += list(self.rules)
        lows = [min(box[side] for box in boxes) for side in (0, 1)]
        highs = [max(box[side] for box in boxes) for side in (2, 3)]
        return lows[0], lows[1], highs[0], highs[1]


@dataclass(frozen=True)
class DrawnPage:
    """`rows` x `columns` visual tokens with regions in reading order."""

    rows: int
    columns: int
    regions: tuple[DrawnRegion, ...]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.columns * CELL, self.rows * CELL

    @property
    def words(self) -> list[DrawnWord]:
        return [word for region in self.regions for word in region.words]

    @property
    def markdown(self) -> str:
        return "\n\n".join(region.text for region in self.regions)


def join(pieces: Sequence[str]) -> str:
    """Tokens to text: a blank between them, but for marks and line ends."""
    text = ""
    for piece in pieces:
        bare = not text or piece in (".", ",") or piece.startswith("\n") or text.endswith("\n")
        text += piece if bare else f" {piece}"
    return text
