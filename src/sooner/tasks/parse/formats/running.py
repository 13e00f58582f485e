"""Page headers and footers that nobody marked as such: what neighbouring pages repeat."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from ....documents.regions import PAGE_FOOTER, PAGE_HEADER, SECTION_HEADER, TEXT, Box
from ..result import ParsedPage

NUMBER = re.compile(r"\d+|\b[ivxlc]+\b")

NEAR = 2
"""Pages before and behind that are compared: left and right ones may differ."""

EDGE, MOVED = 0.12, 0.01
"""Share of the page's height, above and below, where they stand, and by which they may differ."""

WORDS = 16
"""Words at most."""

CLOSE = 0.75
"""Heights that are free, at least, between them and the text: what is nearer is the head of what
stands below it, such as of a table that goes on."""

ROMAN = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}


@dataclass(frozen=True)
class Edge:
    """Holds a short text at a page's edge.

    Attributes:
        order: of its region.
        text: without its numbers.
        top: where it stands, as a share of the page's height.
        number: what it says, if that is a number and nothing else.
    """

    order: int
    text: str
    top: float
    number: int | None = None

    def is_like(self, other: Edge, pages: int) -> bool:
        """Returns whether both are the same thing, `pages` apart: numbers of pages count these."""
        if self.number is not None and other.number is not None:
            return other.number - self.number == pages and abs(self.top - other.top) <= MOVED
        return self.text == other.text and abs(self.top - other.top) <= MOVED


class Running:
    """Edges of the pages that were seen last."""

    def __init__(self) -> None:
        self.seen: deque[tuple[int, list[Edge]]] = deque(maxlen=2 * NEAR + 1)

    def add(self, parsed: ParsedPage) -> None:
        self.seen.append((parsed.number, list(_edges(parsed))))

    def of(self, number: int) -> dict[int, str]:
        """Returns what regions of a page are, by order: those that stand on a page nearby, too."""
        mine = next((edges for page, edges in self.seen if page == number), [])
        rest = [
            (edge, page - number)
            for page, edges in self.seen
            if 0 < abs(page - number) <= NEAR
            for edge in edges
        ]
        return {
            edge.order: PAGE_HEADER if edge.top < EDGE else PAGE_FOOTER
            for edge in mine
            if any(edge.is_like(other, apart) for other, apart in rest)
        }


def _edges(parsed: ParsedPage) -> Iterator[Edge]:
    width, height = parsed.size
    # Slides repeat their headings, and these belong to the text.
    labels = (TEXT, SECTION_HEADER) if height > width else (TEXT,)
    boxes = [region.bbox for region in parsed.regions if region.bbox is not None]
    inner = [box for box in boxes if box[3] > EDGE * height and box[1] < (1 - EDGE) * height]
    for region in parsed.regions:
        text = region.text.lstrip("# ")
        if region.label in labels and region.bbox is not None and 0 < len(text.split()) <= WORDS:
            _, top, _, bottom = region.bbox
            is_above, is_below = bottom <= EDGE * height, top >= (1 - EDGE) * height
            if (is_above or is_below) and not _is_close(region.bbox, inner, is_above):
                masked = NUMBER.sub("0", " ".join(text.casefold().split()))
                yield Edge(region.order, masked, top / height, _number(text))


def _is_close(box: Box, inner: list[Box], is_above: bool) -> bool:
    """Returns whether the page's text begins right below a box at its top, or ends right
    above one.
    """
    left, top, right, bottom = box
    gaps = [
        other[1] - bottom if is_above else top - other[3]
        for other in inner
        if other[0] < right and left < other[2]
    ]
    return any(0 <= gap < CLOSE * (bottom - top) for gap in gaps)


def _number(text: str) -> int | None:
    """Returns an arabic or small roman number."""
    text = text.strip()
    if text.isdecimal():
        return int(text)
    if not text or set(text) - set(ROMAN):
        return None
    values = [ROMAN[letter] for letter in text]
    return sum(-a if a < b else a for a, b in zip(values, [*values[1:], 0], strict=True))
