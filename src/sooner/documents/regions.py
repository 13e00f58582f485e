"""Regions of a page: boxes, categories (DocLayNet's eleven), and what drafters read in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ..errors import SoonerError, unknown

Box = tuple[float, float, float, float]

Size = tuple[int, int]
"""Width and height of a page's picture, in pixels."""


def box(value: Iterable[float | str]) -> Box:
    """Returns four numbers as a box, corners in order.

    Raises:
        SoonerError: something else than four numbers.
    """
    try:
        x0, y0, x1, y1 = map(float, value)
    except (TypeError, ValueError):
        raise SoonerError(f"{value!r} is no box; give [left, top, right, bottom]") from None
    return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)


def area(a: Box) -> float:
    return max(a[2] - a[0], 0.0) * max(a[3] - a[1], 0.0)


def overlap(a: Box, b: Box) -> float:
    """Returns the area that two boxes share."""
    return area((max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])))


def around(boxes: Iterable[Box]) -> Box:
    """Returns the smallest box that holds all of `boxes`, of which there must be one."""
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def common_share(a: Box, b: Box, axis: int) -> float:
    """Returns the share of the smaller width (axis 0) or height (axis 1) that two boxes have in
    common."""
    length = min(a[axis + 2], b[axis + 2]) - max(a[axis], b[axis])
    shorter = min(a[axis + 2] - a[axis], b[axis + 2] - b[axis])
    return max(0.0, length) / max(shorter, 1e-9)


def cell_of(a: Box, cells: Sequence[Box]) -> int | None:
    """Returns which cell holds the middle of a box; `None` for none."""
    x, y = (a[0] + a[2]) / 2, (a[1] + a[3]) / 2
    numbers = (n for n, (x0, y0, x1, y1) in enumerate(cells) if x0 <= x <= x1 and y0 <= y <= y1)
    return next(numbers, None)


def scaled(a: Box, x: float, y: float) -> Box:
    return a[0] * x, a[1] * y, a[2] * x, a[3] * y


def clipped(a: Box, width: float, height: float) -> Box:
    """Returns the part of a box that is on a page."""
    x0, x1 = (min(max(value, 0.0), width) for value in (a[0], a[2]))
    y0, y1 = (min(max(value, 0.0), height) for value in (a[1], a[3]))
    return x0, y0, x1, y1


class Label(StrEnum):
    """What a region is: the categories of DocLayNet."""

    CAPTION = "Caption"
    FOOTNOTE = "Footnote"
    FORMULA = "Formula"
    LIST_ITEM = "List-item"
    PAGE_FOOTER = "Page-footer"
    PAGE_HEADER = "Page-header"
    PICTURE = "Picture"
    SECTION_HEADER = "Section-header"
    TABLE = "Table"
    TEXT = "Text"
    TITLE = "Title"


HEADINGS: dict[str, int] = {Label.TITLE: 1, Label.SECTION_HEADER: 2}
"""Headings, and the level of each where nobody knows it."""

FURNITURE = (Label.PAGE_HEADER, Label.PAGE_FOOTER)
"""Repeated from page to page, no part of the text."""

_SYNONYMS = {
    Label.TITLE: "title doc_title",
    Label.SECTION_HEADER: "section_header heading sub_title paragraph_title",
    Label.LIST_ITEM: "list_item list list_group",
    Label.CAPTION: "caption figure_caption table_caption image_caption",
    Label.FOOTNOTE: "footnote page_footnote",
    Label.FORMULA: "formula equation interline_equation equation_block",
    Label.TABLE: "table document_index table_of_contents otsl",
    Label.PICTURE: "picture figure image chart diagram",
    Label.PAGE_HEADER: "page_header header",
    Label.PAGE_FOOTER: "page_footer footer page_number",
}

_KNOWN = {name: label for label, names in _SYNONYMS.items() for name in names.split()}


def label_of(name: str) -> Label:
    """Returns the category that another tool calls `name`; unknown ones are text."""
    return _KNOWN.get(name.strip().lower().replace("-", "_").replace(" ", "_"), Label.TEXT)


@dataclass(frozen=True)
class Region:
    """A part of a page (`r_i` of the HSD paper, section 3.1) that has drafts (`y~(i,k)`).

    Drafts are as they were read: lines end in `\\n`, cells of a table in tabs or tables in HTML,
    formulas in LaTeX. `serialise` writes them as a target would.

    Attributes:
        bbox: in pixels of the page's picture; `None` if nobody knows where the text is.
        label: what it is; a name of `Label` will do.
        order: place in reading order, from 0.
        drafts: texts, the best first, with U+FFFD for lone surrogates, which tokenizers and files
            refuse. None if the region has no text, such as a picture.
        level: of a heading, 1 for the highest; 0 for unknown.
        confidence: of the drafter that its first draft is right, from 0 to 1; `None` for unknown.
    """

    bbox: Box | None
    label: str = Label.TEXT
    order: int = 0
    drafts: list[str] = field(default_factory=list)
    level: int = 0
    confidence: float | None = None

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "label", Label(self.label))
        except ValueError:
            raise unknown("region label", self.label, Label) from None
        if self.bbox is not None:
            object.__setattr__(self, "bbox", box(self.bbox))
        codes = [draft.encode("utf-16", "surrogatepass") for draft in self.drafts]
        object.__setattr__(self, "drafts", [each.decode("utf-16", "replace") for each in codes])

    @property
    def heading_level(self) -> int:
        """Level of a heading, as far as it is known; 0 if the region is none."""
        return self.level or HEADINGS[self.label] if self.label in HEADINGS else 0

    def thousandths(self, size: Size) -> tuple[int, int, int, int] | None:
        """Returns the box in thousandths of the page's width and height, whole numbers."""
        if self.bbox is None:
            return None
        place = scaled(self.bbox, 1000 / max(size[0], 1), 1000 / max(size[1], 1))
        x0, y0, x1, y1 = clipped(place, 1000, 1000)
        return math.floor(x0), math.floor(y0), math.ceil(x1), math.ceil(y1)


@dataclass(frozen=True)
class PageDraft:
    """The regions that a drafter returns for a page.

    Attributes:
        regions: in reading order.
        seconds: that it took.
        drafter: its name.
        size: of the picture that the boxes are for.
        reason: why there is nothing, where something went wrong; one line.
    """

    regions: list[Region]
    seconds: float = 0.0
    drafter: str = ""
    size: Size = (0, 0)
    reason: str = ""

    @property
    def texts(self) -> list[str]:
        """All drafts, in reading order, as they were read."""
        return [draft for region in self.regions for draft in region.drafts]


def numbered(regions: Sequence[Region]) -> list[Region]:
    """Returns the same regions, their order set to their places in the list."""
    return [replace(region, order=place) for place, region in enumerate(regions)]


def resized(
    regions: Iterable[Region], frame: tuple[float, float] | None, size: Size
) -> list[Region]:
    """Returns regions whose boxes are given in `frame`, in pixels of a picture of `size`."""
    if not frame or 0 in (*frame, *size):
        return list(regions)
    x, y = size[0] / frame[0], size[1] / frame[1]
    return [replace(region, bbox=region.bbox and scaled(region.bbox, x, y)) for region in regions]
