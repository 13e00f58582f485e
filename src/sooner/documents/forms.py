"""Forms in which models answer: how each writes regions, and how its answers are read; and those
without boxes, which are Markdown, also behind YAML front matter."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from .regions import FURNITURE, Label, Region, Size, clipped, numbered, scaled
from .serialise import MARKDOWN, Style, bare_formula, written
from .tables import OTSL, read_table, to_html

FENCES = ("markdown", "md")
"""Names of a code fence around a whole answer, which is taken off."""


@dataclass(frozen=True)
class FormAnswer:
    """The regions that an answer lists itself.

    Attributes:
        regions: in the answer's order, one draft each at most; boxes in the form's own units.
        written: their texts as they stand in the answer.
        repaired: the answer was not in its form, and something may be lost.
    """

    regions: list[Region] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    repaired: bool = False

    @classmethod
    def of(cls, entries: Iterable[tuple[Region, str]], repaired: bool) -> FormAnswer:
        """Returns the answer of regions and their texts, without regions of which nothing is
        known.
        """
        known = [entry for entry in entries if any(entry[0].drafts) or entry[0].bbox is not None]
        return cls(numbered([region for region, _ in known]), [text for _, text in known], repaired)


class PageForm:
    """A form in which models answer: this one is texts alone, see `Blocks`.

    Drafts are compared with what the model writes token by token, so that a form writes regions
    exactly as the model does, tags, blanks and line feeds included.

    Attributes:
        style: in which the text of a region is written.
        frame: width and height in which boxes are said; `None` for pixels of the picture.
        has_boxes: an answer lists regions with boxes, which `read` finds.
        is_special: its tags are special tokens of the model, which decoding must not leave out.
        fences: names of a code fence that may stand around a whole answer.
        marks: what stands in front of the first region, between two, and behind the last one.
    """

    style: Style = MARKDOWN
    frame: Size | None = None
    has_boxes: bool = False
    is_special: bool = False
    fences: tuple[str, ...] = FENCES
    marks: tuple[str, str, str] = ("", "\n\n", "")

    def check(self) -> None:
        """Require what reading an answer needs.

        Raises:
            SoonerError: a package is not installed.
        """

    def texts(self, region: Region, size: Size, seen: Size | None = None) -> list[str]:
        """All drafts of a region as the model would write them, each once.

        Args:
            size: of the picture that the region's box is for.
            seen: width and height in which the model says boxes, where the form does not say.
        """
        if region.label in FURNITURE and not self.style.furniture:
            return []
        is_picture = region.label == Label.PICTURE
        drafts = region.drafts or [""] * (self.has_boxes and is_picture)
        texts = (self.text_of(region, draft) for draft in drafts)
        elements = (self.element(region, text, size, seen) for text in texts if text or is_picture)
        return [element for element in dict.fromkeys(elements) if element]

    def text_of(self, region: Region, draft: str) -> str:
        """Returns a draft as the form writes it, without what it puts around it."""
        return written(region, draft, self.style)

    def element(self, region: Region, text: str, size: Size, seen: Size | None = None) -> str:
        """Returns a text of `text_of` with what the form puts around it."""
        return text

    def sides(self, region: Region, size: Size) -> list[int]:
        """Returns a region's box in whole units of the frame, on the page; empty for none."""
        if region.bbox is None or self.frame is None or 0 in size:
            return []
        place = scaled(region.bbox, self.frame[0] / size[0], self.frame[1] / size[1])
        return [math.floor(side + 0.5) for side in clipped(place, *self.frame)]

    def start(self, first: Region) -> str:
        """Returns what the model writes in front of the first region."""
        return self.marks[0]

    def between(self, region: Region, following: Region) -> str:
        """Returns what it writes between two regions."""
        return self.marks[1]

    def end(self, last: Region) -> str:
        """Returns what it writes behind the last region."""
        return self.marks[2]

    def body(self, text: str) -> str:
        """Returns the Markdown or HTML of an answer, without what is not of the page."""
        return text

    def read(self, text: str) -> FormAnswer:
        """Returns the regions of an answer with boxes, as far as it can be read."""
        raise NotImplementedError

    def draft(self, text: str, label: str) -> str:
        """Returns what an answer about one region's crop says, as a drafter would have read it."""
        if not self.has_boxes:
            return self.body(text).strip()
        drafts = [draft for region in self.read(text).regions for draft in region.drafts]
        return "\n\n".join(drafts) or text.strip()


def stripped(text: str) -> str:
    """Returns a text without blanks at the ends of its lines, and without blank lines around it."""
    return re.sub(r"[ \t]+(?=\n|$)", "", text).strip()


class Blocks(PageForm):
    """The form that Markdown has: blocks with blank lines between them.

    Args:
        style: of tables, formulas and headings.
    """

    def __init__(self, style: Style = MARKDOWN) -> None:
        self.style = style
        self.is_special = style.tables == "otsl"

    def between(self, region: Region, following: Region) -> str:
        return "\n" if region.label == following.label == Label.LIST_ITEM else "\n\n"

    def draft(self, text: str, label: str) -> str:
        text = super().draft(text, label)
        if label == Label.TABLE and OTSL.search(text):
            return to_html(read_table(text))
        return bare_formula(text) if label == Label.FORMULA else text


MATTER = re.compile(
    r"\A\s*---[ \t]*\n(?:[ \t]*[\w-]+[ \t]*:[^\n]*(?:\n|\Z))*(?:---[ \t]*(?:\n|\Z)|\Z)"
)
"""YAML in front of a text, which may be cut off."""


class FrontMatter(Blocks):
    """Markdown with YAML in front of it, which says what sort of page it is.

    Answers of olmOCR begin so (Poznanski et al., 2025; its repository's `prompts.py`): language,
    whether the page stands upright, and whether it is all table or diagram.

    Args:
        style: of what follows.
    """

    def start(self, first: Region) -> str:
        is_table = first.label == Label.TABLE
        return (
            f"---\nprimary_language: en\nis_rotation_valid: True\n"
            f"rotation_correction: 0\nis_table: {is_table}\nis_diagram: False\n---\n"
        )

    def body(self, text: str) -> str:
        return MATTER.sub("", text)
