"""Pages as formats of documents see them: tables and paragraphs that go on are whole again.

A page's own files are never changed. Within a document, the last block of a page and the first one
of the next become one if all signs say so (`continued.py`); where they are doubtful, nothing
happens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from ....documents import Region
from ....documents.regions import CAPTION, FOOTNOTE, FURNITURE, SECTION_HEADER, TABLE, TEXT, Box
from ....documents.serialise import escaped, written
from ..forms import FORMS, MARKDOWN_HTML
from ..result import PARTIAL, ParsedPage, ParsedRegion
from .continued import CONTINUES, Ending, Whole, joined
from .running import NEAR, Running

BETWEEN = "\n\n"


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
        last = self.parts.pop()
        self.parts.append(BlockPart(last.page, last.bbox, last.start, text.cut))
        end = len(text.text)
        self.parts += [BlockPart(part.page, part.bbox, text.start, end) for part in other.parts]
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
    last = pending[-1].parsed
    is_next = page.parsed.number == last.number + 1
    if not is_next or last.status == PARTIAL:
        return False
    home, body = pending[0], page.body
    places = home.body
    noted = [place for place in places if home.blocks[place].label == FOOTNOTE]
    while places and places[-1] in noted:
        places.pop()
    marks = [home.blocks[place] for place in places[-1:] if is_marked(home.blocks[place])]
    places = places[: len(places) - len(marks)]
    next_marks = [page.blocks[place] for place in body[:1] if is_marked(page.blocks[place])]
    body = body[len(next_marks) :]
    if not places or not body:
        return False
    tail, head = home.blocks[places[-1]], page.blocks[body[0]]
    if (marks or next_marks) and not tail.label == head.label == TABLE:
        return False
    followed_by = page.blocks[body[1]] if len(body) > 1 else None
    ending = Ending(
        labels=(tail.label, head.label),
        boxes=(tail.parts[-1].bbox, head.parts[0].bbox),
        sizes=(last.size, page.parsed.size),
        before_footnotes=places[-1] < max(noted, default=-1),
        after_text=len(places) > 1 and home.blocks[places[-2]].label == TEXT,
        followed_by=(followed_by.label, followed_by.text) if followed_by else ("", ""),
        is_marked=bool(marks or next_marks),
    )
    text = joined(tail.text, head.text, ending)
    # The Markdown may write a table otherwise than its region does.
    markdown = joined(tail.markdown, head.markdown, ending)
    if text is None or markdown is None or not home.rewrite(tail, markdown.text):
        return False
    for block in (head, *next_marks):
        page.remove(block)
    for block in marks:
        home.remove(block)
    tail.take(head, text, markdown.text)
    return True


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
