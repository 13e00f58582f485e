"""Pages as formats of documents see them: tables and paragraphs that go on are whole again, and
what neighbouring pages repeat at their edges is a page header or footer, though nobody marked it.

A page's own files are never changed. Within a document, the last block of a page and the first one
of the next become one if all signs say so (`continued.py`); where they are doubtful, nothing
happens.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

from ....documents import Region
from ....documents.regions import FURNITURE, Box, Label, Size
from ....documents.serialise import escaped, written
from ..families import FORMS, MARKDOWN_HTML
from ..result import PARTIAL, ParsedPage, ParsedRegion
from .continued import CONTINUES, Whole, joined_paragraph, joined_table
from .figures import figure_address

LOW, HIGH = 0.6, 0.4
"""Shares of a page's height: a page that ends above was not full, so nothing goes on behind it."""

ALIGNED = 0.03
"""Most difference between edges of tables, as a share of the page's width."""

Boxes = tuple[Box | None, Box | None]
"""Where the last block of a page and the first one of the next stand."""


@dataclass(frozen=True)
class BlockPart:
    """Where a part of a block stands.

    Attributes:
        page: its number.
        bbox: in pixels of that page's picture; `None` if nobody said where.
        start, end: the part's letters in the block's text.
    """

    page: int
    bbox: Box | None
    start: int
    end: int


@dataclass(eq=False)
class DocumentBlock:
    """A region, with what follows of it on later pages.

    Attributes:
        label, level, picture: as in `ParsedRegion`.
        text: in the target's own form.
        before: what stands in front of it in the page's Markdown, behind the block before.
        markdown: its text as it stands in the page's Markdown; empty if it is not found there.
        parts: where it stands, one for each page.
    """

    label: str
    text: str
    level: int
    picture: str
    before: str
    markdown: str
    parts: list[BlockPart]

    def take(self, other: DocumentBlock, text: Whole, markdown: str) -> None:
        """Become one with the block that goes on from this one."""
        self.parts[-1] = replace(self.parts[-1], end=text.cut)
        self.parts += [replace(part, start=text.start, end=len(text.text)) for part in other.parts]
        self.text, self.markdown = text.text, markdown


@dataclass
class DocumentPage:
    """Holds a page of a document.

    Attributes:
        parsed: the page as it was parsed.
        blocks: in reading order, without those that an earlier page took over.
        after: what stands behind the last of them in the page's Markdown.
    """

    parsed: ParsedPage
    blocks: list[DocumentBlock]
    after: str

    @classmethod
    def of(
        cls, parsed: ParsedPage, labels: Mapping[int, str] = MappingProxyType({})
    ) -> DocumentPage:
        """Returns a page.

        Args:
            labels: of regions, by order, where they are not what the page says.
        """
        blocks, at, whole = [], 0, parsed.markdown
        for region in parsed.regions:
            start, end = _standing(region, parsed, at)
            part = BlockPart(parsed.number, region.bbox, 0, len(region.text))
            block = DocumentBlock(
                labels.get(region.order, region.label), region.text, region.level, region.picture,
                before=whole[at:start], markdown=whole[start:end], parts=[part],
            )  # fmt: skip
            blocks.append(block)
            at = end
        return cls(parsed, blocks, whole[at:])

    def markdown(self, folder: str = "") -> str:
        """Returns the page's Markdown, with an image for each figure in reading order.

        Args:
            folder: of figures, as seen from the file.
        """
        text, is_behind_figure = "", False
        for block in self.blocks:
            if block.label == Label.PICTURE and block.picture:
                text += f"\n\n![Figure]({figure_address(folder, block.picture)})"
                is_behind_figure = True
            part = block.before + block.markdown
            if part and is_behind_figure:
                part, is_behind_figure = "\n\n" + part.lstrip("\n"), False
            text += part
        return text + self.after

    @property
    def body(self) -> list[DocumentBlock]:
        """The blocks that are no page headers or footers."""
        return [block for block in self.blocks if block.label not in FURNITURE]

    def remove(self, block: DocumentBlock) -> None:
        """Take a block out; text in front of it that is of no block stays."""
        place, before = self.blocks.index(block), block.before.rstrip()
        del self.blocks[place]
        if place < len(self.blocks):
            self.blocks[place].before = before + self.blocks[place].before
        else:
            self.after = before + self.after

    def without_furniture(self) -> DocumentPage:
        """Returns the page without page headers and footers."""
        for block in [entry for entry in self.blocks if entry.label in FURNITURE]:
            self.remove(block)
        return self


def folder_of(info: dict[str, Any]) -> str:
    """Returns the folder of a document's pages, as seen from the document's own files."""
    return PurePosixPath(info["source"]).name


def joined_pages(pages: Iterable[ParsedPage]) -> Iterator[DocumentPage]:
    """Pages in order, each once nothing can follow it; those that a table covers wait together."""
    pending: list[DocumentPage] = []
    for parsed, labels in labelled(pages):
        page = DocumentPage.of(parsed, labels)
        if pending and _goes_on(pending, page):
            pending.append(page)
            if page.body:
                yield from pending[:-1]
                pending = [page]
        else:
            yield from pending
            pending = [page]
    yield from pending


def _goes_on(pending: list[DocumentPage], page: DocumentPage) -> bool:
    """Join the last block of the pages held with the first one of the next page, if it goes on."""
    last, home = pending[-1].parsed, pending[0]
    if page.parsed.number != last.number + 1 or last.status == PARTIAL:
        return False
    blocks, rest = home.body, page.body
    is_noted = bool(blocks) and blocks[-1].label == Label.FOOTNOTE
    while blocks and blocks[-1].label == Label.FOOTNOTE:
        blocks.pop()
    marks = [blocks.pop()] if blocks and is_marked(blocks[-1]) else []
    next_marks = [rest.pop(0)] if rest and is_marked(rest[0]) else []
    if not blocks or not rest:
        return False
    tail, head, label = blocks[-1], rest[0], rest[0].label
    sizes, boxes = (last.size, page.parsed.size), (tail.parts[-1].bbox, head.parts[0].bbox)
    if not _is_at_edges(boxes, sizes):
        return False
    join: Callable[[str, str], Whole | None]
    if tail.label == label == Label.TABLE and not is_noted and not _has_caption(rest[1:2]):
        is_placed = bool(marks or next_marks) or _is_aligned(boxes, sizes)
        join = partial(joined_table, is_placed=is_placed)
    elif (
        tail.label in (Label.TEXT, Label.LIST_ITEM)
        and label == Label.TEXT
        and not (marks or next_marks)
    ):
        is_below = [block.label for block in blocks[-2:]] == [Label.TEXT, Label.TEXT]
        join = partial(joined_paragraph, after_text=is_below)
    else:
        return False
    # The Markdown may write a table otherwise than its region does.
    text, markdown = join(tail.text, head.text), join(tail.markdown, head.markdown)
    if text is None or markdown is None:
        return False
    for block in (head, *next_marks):
        page.remove(block)
    for block in marks:
        home.remove(block)
    tail.take(head, text, markdown.text)
    return True


def _is_at_edges(boxes: Boxes, sizes: Sequence[Size]) -> bool:
    """Returns whether they stand in the lower and the upper part of their pages, if that is
    known.
    """
    low, high = boxes
    reaches_down = low is None or low[3] >= LOW * sizes[0][1]
    return reaches_down and (high is None or high[1] <= HIGH * sizes[1][1])


def _is_aligned(boxes: Boxes, sizes: Sequence[Size]) -> bool:
    """Returns whether left and right edges are the same."""
    first, other = boxes
    if first is None or other is None:
        return False
    shares = [(first[side] / sizes[0][0], other[side] / sizes[1][0]) for side in (0, 2)]
    return all(abs(a - b) <= ALIGNED for a, b in shares)


def _has_caption(following: list[DocumentBlock]) -> bool:
    """Returns whether a table's own caption follows it."""
    return any(
        block.label == Label.CAPTION and not block.text.lower().startswith("fig")
        for block in following
    )


def is_marked(block: DocumentBlock) -> bool:
    """Returns whether a block says that a table goes on on another page, and nothing else."""
    is_text = block.label in (Label.TEXT, Label.CAPTION, Label.SECTION_HEADER)
    return is_text and CONTINUES.fullmatch(block.text.strip()) is not None


def _standing(region: ParsedRegion, parsed: ParsedPage, at: int) -> tuple[int, int]:
    """Returns start and end of a region's text on lines of its own in the page's Markdown, which
    may write it in another way; both `at` if it is not found behind that.
    """
    form = FORMS.get(parsed.form)
    form_style = None if form is None or form.has_boxes else form.style
    style = MARKDOWN_HTML if form_style is None else form_style
    plain = written(Region(None, region.label, 0, [], region.level), region.text, style)
    for text in (region.text.strip(), plain, escaped(plain)) if region.text.strip() else ():
        own_lines = re.compile(rf"^{re.escape(text)}$", re.MULTILINE)
        if match := own_lines.search(parsed.markdown, at):
            return match.span()
    return at, at


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


@dataclass(frozen=True)
class Edge:
    """Holds a short text at a page's edge.

    Attributes:
        order: of its region.
        text: without its numbers.
        top: where it stands, as a share of the page's height.
        number: what it says, if that is digits and nothing else.
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


def labelled(pages: Iterable[ParsedPage]) -> Iterator[tuple[ParsedPage, dict[int, str]]]:
    """Yields pages with the labels of regions, by order, that a page nearby repeats; the next
    pages are needed for that.
    """
    edges, waiting = dict[int, list[Edge]](), deque[ParsedPage]()
    for parsed in chain(pages, repeat(None, NEAR)):
        if parsed is not None:
            edges[parsed.number] = list(_edges(parsed))
            waiting.append(parsed)
        if waiting and (parsed is None or len(waiting) > NEAR):
            first = waiting.popleft()
            yield first, _labels(first.number, edges)


def _labels(number: int, edges: Mapping[int, list[Edge]]) -> dict[int, str]:
    """Returns what regions of a page are, by order: those that stand on a page nearby, too."""
    others = [
        (other, apart)
        for apart in range(-NEAR, NEAR + 1)
        for other in edges.get(number + apart, ())
        if apart
    ]
    return {
        edge.order: Label.PAGE_HEADER if edge.top < EDGE else Label.PAGE_FOOTER
        for edge in edges[number]
        if any(edge.is_like(other, apart) for other, apart in others)
    }


def _edges(parsed: ParsedPage) -> Iterator[Edge]:
    width, height = parsed.size
    # Slides repeat their headings, and these belong to the text.
    labels = (Label.TEXT, Label.SECTION_HEADER) if height > width else (Label.TEXT,)
    boxes = [region.bbox for region in parsed.regions if region.bbox is not None]
    inner = [box for box in boxes if box[3] > EDGE * height and box[1] < (1 - EDGE) * height]
    for region in parsed.regions:
        text = region.text.lstrip("# ")
        if region.label in labels and region.bbox is not None and 0 < len(text.split()) <= WORDS:
            _, top, _, bottom = region.bbox
            is_above, is_below = bottom <= EDGE * height, top >= (1 - EDGE) * height
            if (is_above or is_below) and not _is_close(region.bbox, inner, is_above):
                masked = NUMBER.sub("0", " ".join(text.casefold().split()))
                number = int(text) if text.strip().isdecimal() else None
                yield Edge(region.order, masked, top / height, number)


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
