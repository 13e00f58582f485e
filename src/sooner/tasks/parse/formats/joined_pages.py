"""Pages as formats of documents see them: paragraphs that go on on the next page are whole again.

A page's own files are never changed. Within a document, the last block of a page and the first one
of the next become one if all signs say so: the first one stops within a sentence and the next one
begins in small letters, or a divided word does. A wrong join is worse than none, so where the signs
are doubtful, nothing happens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple
from urllib.parse import quote

from ....documents import Region
from ....documents.regions import FURNITURE, Box, Label
from ....documents.serialise import BULLET, FENCE, HEADING, NUMBER, written
from ..families import FORMS, MARKDOWN_HTML
from ..result import PARTIAL, ParsedPage, ParsedRegion

LOW, HIGH = 0.6, 0.4
"""Shares of a page's height: a page that ends above was not full, so nothing goes on behind it."""


class Whole(NamedTuple):
    """Holds two blocks as one.

    Attributes:
        text: of both.
        cut: where the first one's part ends in it.
        start: where the second one's part begins.
    """

    text: str
    cut: int
    start: int


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
    def of(cls, parsed: ParsedPage) -> DocumentPage:
        """Returns a page with its regions as blocks."""
        blocks, at, whole = [], 0, parsed.markdown
        for region in parsed.regions:
            start, end = _standing(region, parsed, at)
            part = BlockPart(parsed.number, region.bbox, 0, len(region.text))
            block = DocumentBlock(
                region.label, region.text, region.level, region.picture,
                before=whole[at:start], markdown=whole[start:end], parts=[part],
            )  # fmt: skip
            blocks.append(block)
            at = end
        return cls(parsed, blocks, whole[at:])

    def markdown(self, folder: str = "") -> str:
        """Returns the page's Markdown, with an image for each figure in reading order.

        Args:
            folder: of figures, as seen from the file; empty for its own.
        """
        text, is_behind_figure = "", False
        for block in self.blocks:
            if block.label == Label.PICTURE and block.picture:
                address = quote(f"{folder}/{block.picture}" if folder else block.picture)
                text += f"\n\n![Figure]({address})"
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


def joined_pages(pages: Iterable[ParsedPage]) -> Iterator[DocumentPage]:
    """Yields pages in order, each once nothing can follow it; what one paragraph covers waits."""
    pending: list[DocumentPage] = []
    for parsed in pages:
        page = DocumentPage.of(parsed)
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
    """Join the last waiting block with the next page's first, if it goes on; returns whether."""
    last, home = pending[-1].parsed, pending[0]
    if page.parsed.number != last.number + 1 or last.status == PARTIAL:
        return False
    blocks, rest = home.body, page.body
    while blocks and blocks[-1].label == Label.FOOTNOTE:
        blocks.pop()
    if not blocks or not rest:
        return False
    tail, head = blocks[-1], rest[0]
    if tail.label not in (Label.TEXT, Label.LIST_ITEM) or head.label != Label.TEXT:
        return False
    low, high = tail.parts[-1].bbox, head.parts[0].bbox
    if low is not None and low[3] < LOW * last.size[1]:
        return False
    if high is not None and high[1] > HIGH * page.parsed.size[1]:
        return False
    is_below = [block.label for block in blocks[-2:]] == [Label.TEXT, Label.TEXT]
    text = joined_paragraph(tail.text, head.text, is_below)
    markdown = joined_paragraph(tail.markdown, head.markdown, is_below)
    if text is None or markdown is None:
        return False
    page.remove(head)
    tail.take(head, text, markdown.text)
    return True


def _standing(region: ParsedRegion, parsed: ParsedPage, at: int) -> tuple[int, int]:
    """Returns start and end of a region's text on lines of its own in the page's Markdown, which
    may write it in another way; both `at` if it is not found behind that.
    """
    form = FORMS.get(parsed.form)
    style = MARKDOWN_HTML if form is None or form.has_boxes else form.style
    plain = written(Region(None, region.label, 0, [], region.level), region.text, style)
    for text in (region.text.strip(), plain) if region.text.strip() else ():
        own_lines = re.compile(rf"^{re.escape(text)}$", re.MULTILINE)
        if match := own_lines.search(parsed.markdown, at):
            return match.span()
    return at, at


DIVIDED = re.compile(r"[^\W\d_][-\u2010\u00ad]$")

STOPS_WITHIN = re.compile(r"(?:[^\W\d_]|[,\-\u2010-\u2015)\]])$")
"""A letter, comma, dash or bracket: within a sentence. Numbers may be of a page or of a line in a
table of contents, so they don't count."""

OPENING = "([\"'“‘«"
"""What may stand before a sentence's small letter."""

NOTE = re.compile(r"\s*(?:\d{1,3}|[*†‡§¶]|[¹²³⁴⁵-⁹]|\[\d{1,3}\]|\$\^|<sup>|\(\d{1,3}\))")
"""How footnotes begin, where nobody marked them as such."""

FEWEST_BEFORE, FEWEST_AFTER = 8, 5
"""Words that both sides must have, unless a word is divided."""

MARKS = ("|", "<", "![", "$$", "\\[", FENCE)
"""How other things than sentences begin."""

SENTENCE_WORD = re.compile(
    r"[*_\"'“”‘’«»(\[]*[^\W_]+(?:['’.,\-\u2010-\u2015/][^\W_]+)*"
    r"[*_\"'“”‘’«»)\].,;:!?…%\-\u2010-\u2015]*|[–—&-]"
)

OPERATOR = re.compile(r"[^\w\s\"'“”‘’.,;:!?…–—&()-]+")
"""A word of signs, as in code and formulas."""

NEAR_WORDS, LAST_WORDS, PROSE = 12, 3, 0.85
"""Words of each side that are looked at, those at the break that must all be words of a language,
and the share of the others that must be."""


def joined_paragraph(text: str, following: str, after_text: bool = False) -> Whole | None:
    """Returns a paragraph or an item of a list, and the rest of it.

    Args:
        after_text: `text` stands below a paragraph, and therefore does not go on from elsewhere.
    """
    before, after = text.rstrip(), following.lstrip()
    is_small = after.lstrip(OPENING)[:1].islower()
    if not before or not is_small or NUMBER.match(after):
        return None
    last = before.split("\n")[-1]
    is_item = BULLET.match(last) or NUMBER.match(last)
    if HEADING.match(last) or (NOTE.match(last) and not is_item):
        return None
    if FENCE in before or FENCE in after or last.startswith(MARKS):
        return None
    if after_text and last[:1].islower():
        return None  # terms with their meanings, or lines of code
    ends, begins = last.split()[-NEAR_WORDS:], after.split()[:NEAR_WORDS]
    around = [*ends[-LAST_WORDS:], begins[0]]
    if not _is_prose(ends) or not _is_prose(begins) or not all(map(_is_word, around)):
        return None
    if DIVIDED.search(before):
        return Whole(f"{before[:-1]}{after}", len(before) - 1, len(before) - 1)
    if len(ends) < FEWEST_BEFORE or len(begins) < FEWEST_AFTER:
        return None
    if not STOPS_WITHIN.search(before):
        return None
    return Whole(f"{before} {after}", len(before), len(before) + 1)


def _is_word(text: str) -> bool:
    return SENTENCE_WORD.fullmatch(text) is not None


def _is_prose(words: list[str]) -> bool:
    known = sum(map(_is_word, words))
    return known >= PROSE * len(words) and not any(map(OPERATOR.fullmatch, words))
