"""Pages as formats of documents see them: tables and paragraphs that go on are whole again.

A page's own files are never changed. Within a document, the last block of a page and the first one
of the next become one if all signs say so (`continued.py`); where they are doubtful, nothing
happens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from ....documents import Region
from ....documents.regions import (
    CAPTION,
    FOOTNOTE,
    FURNITURE,
    LIST_ITEM,
    SECTION_HEADER,
    TABLE,
    TEXT,
    Box,
    Size,
)
from ....documents.serialise import escaped, written
from ..forms import FORMS, MARKDOWN_HTML
from ..result import PARTIAL, ParsedPage, ParsedRegion
from .continued import CONTINUES, Whole, joined_paragraph, joined_table
from .running import NEAR, Running

BETWEEN = "\n\n"

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


@dataclass
class DocumentBlock:
    """A region, with what follows of it on later pages.

    Attributes:
        label, level, picture: as in `ParsedRegion`.
        text: in the target's own form.
        markdown: the same as it stands in the page's Markdown; empty if it is not found there.
        parts: where it stands, one for each page.
    """

    label: str
    text: str
    level: int
    picture: str
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
        markdown: blocks, without those that an earlier page took over.
        blocks: the same, in reading order.
    """

    parsed: ParsedPage
    markdown: str
    blocks: list[DocumentBlock] = field(default_factory=list)

    @classmethod
    def of(cls, parsed: ParsedPage, labels: Mapping[int, str] | None = None) -> DocumentPage:
        """Returns a page.

        Args:
            labels: of regions, by order, where they are not what the page says.
        """
        names = labels or {}
        blocks = [_block(region, parsed, names.get(region.order)) for region in parsed.regions]
        return cls(parsed, parsed.markdown, blocks)

    @property
    def body(self) -> list[int]:
        """Places of the blocks that are no page headers or footers."""
        blocks = enumerate(self.blocks)
        return [place for place, block in blocks if block.label not in FURNITURE]

    def rewrite(self, block: DocumentBlock, text: str) -> bool:
        """Put another text where the last `block.markdown` stands; whether that is there."""
        start = _standing(self.markdown, block.markdown, is_last=True)
        if start is None:
            return False
        end = start + len(block.markdown)
        self.markdown = f"{self.markdown[:start]}{text}{self.markdown[end:]}"
        return True

    def remove(self, block: DocumentBlock) -> None:
        """Take a block out."""
        place = next(n for n, other in enumerate(self.blocks) if other is block)
        is_last = place > len(self.blocks) / 2  # a page's number may stand elsewhere, too
        del self.blocks[place]
        start = _standing(self.markdown, block.markdown, is_last)
        if start is None:
            return
        before = self.markdown[:start].rstrip("\n")
        after = self.markdown[start + len(block.markdown) :].lstrip("\n")
        self.markdown = f"{before}{BETWEEN if before and after else ''}{after}"

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
    for page in labelled(pages):
        if pending and _goes_on(pending, page):
            pending.append(page)
            if page.body:
                yield from pending[:-1]
                pending = [page]
        else:
            yield from pending
            pending = [page]
    yield from pending


def labelled(pages: Iterable[ParsedPage]) -> Iterator[DocumentPage]:
    """Pages with their headers and footers told apart, for which the next ones are needed."""
    running, waiting = Running(), deque[ParsedPage]()
    for parsed in pages:
        running.add(parsed)
        waiting.append(parsed)
        if len(waiting) > NEAR:
            first = waiting.popleft()
            yield DocumentPage.of(first, running.of(first.number))
    for parsed in waiting:
        yield DocumentPage.of(parsed, running.of(parsed.number))


def _goes_on(pending: list[DocumentPage], page: DocumentPage) -> bool:
    """Join the last block of the pages held with the first one of the next page, if it goes on."""
    last, home = pending[-1].parsed, pending[0]
    if page.parsed.number != last.number + 1 or last.status == PARTIAL:
        return False
    blocks = [home.blocks[place] for place in home.body]
    is_noted = bool(blocks) and blocks[-1].label == FOOTNOTE
    while blocks and blocks[-1].label == FOOTNOTE:
        blocks.pop()
    marks = [blocks.pop()] if blocks and is_marked(blocks[-1]) else []
    rest = [page.blocks[place] for place in page.body]
    next_marks = [rest.pop(0)] if rest and is_marked(rest[0]) else []
    if not blocks or not rest:
        return False
    tail, head, label = blocks[-1], rest[0], rest[0].label
    sizes, boxes = (last.size, page.parsed.size), (tail.parts[-1].bbox, head.parts[0].bbox)
    if not _is_at_edges(boxes, sizes):
        return False
    join: Callable[[str, str], Whole | None]
    if tail.label == label == TABLE and not is_noted and not _has_caption(rest[1:2]):
        is_placed = bool(marks or next_marks) or _is_aligned(boxes, sizes)
        join = partial(joined_table, is_placed=is_placed)
    elif tail.label in (TEXT, LIST_ITEM) and label == TEXT and not (marks or next_marks):
        is_below = [block.label for block in blocks[-2:]] == [TEXT, TEXT]
        join = partial(joined_paragraph, after_text=is_below)
    else:
        return False
    # The Markdown may write a table otherwise than its region does.
    text, markdown = join(tail.text, head.text), join(tail.markdown, head.markdown)
    if text is None or markdown is None or not home.rewrite(tail, markdown.text):
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
        block.label == CAPTION and not block.text.lower().startswith("fig") for block in following
    )


def is_marked(block: DocumentBlock) -> bool:
    """Returns whether a block says that a table goes on on another page, and nothing else."""
    is_text = block.label in (TEXT, CAPTION, SECTION_HEADER)
    return is_text and CONTINUES.fullmatch(block.text.strip()) is not None


def _block(region: ParsedRegion, parsed: ParsedPage, label: str | None = None) -> DocumentBlock:
    """Returns a region's block; its Markdown is that of its own label, whatever it is told
    to be.
    """
    part = BlockPart(parsed.number, region.bbox, 0, len(region.text))
    markdown = _as_markdown(region, parsed)
    label = label or region.label
    return DocumentBlock(label, region.text, region.level, region.picture, markdown, [part])


def _as_markdown(region: ParsedRegion, parsed: ParsedPage) -> str:
    """Returns a region's text as it stands in its page's Markdown, which may write it in another
    way.
    """
    if not region.text.strip():
        return ""
    form = FORMS.get(parsed.form)
    form_style = None if form is None or form.has_boxes else form.style
    style = MARKDOWN_HTML if form_style is None else form_style
    plain = written(Region(None, region.label, 0, [], region.level), region.text, style)
    for text in (region.text.strip(), plain, escaped(plain)):
        if _standing(parsed.markdown, text, is_last=False) is not None:
            return text
    return ""


def _standing(markdown: str, text: str, is_last: bool) -> int | None:
    """Returns where a text stands on lines of its own."""
    start = -1
    result = None
    while text and (start := markdown.find(text, start + 1)) >= 0:
        end = start + len(text)
        begins = start == 0 or markdown[start - 1] == "\n"
        if begins and (end == len(markdown) or markdown[end] == "\n"):
            result = start
            if not is_last:
                break
    return result
