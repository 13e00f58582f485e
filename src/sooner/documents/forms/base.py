"""What a form of answers has to say: how a region is written, and how an answer is read."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from ..regions import Box, Region, Size, clipped, scaled
from ..serialise import MARKDOWN, Style, texts_of

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


class PageForm:
    """A form in which models answer: this one is texts alone, see `Blocks`.

    Drafts are compared with what the model writes token by token, so that a form writes regions
    exactly as the model does, tags, blanks and line feeds included.

    Attributes:
        style: in which the text of a region is written; `None` where it is not Markdown.
        frame: width and height in which boxes are said; `None` for pixels of the picture.
        has_boxes: an answer lists regions with boxes, which `read` finds.
        is_special: its tags are special tokens of the model, which decoding must not leave out.
        fences: names of a code fence that may stand around a whole answer.
        is_plain: texts in `style` are written as they are, one behind the other, so that several
            regions may stand in one answer.
    """

    style: Style | None = None
    frame: Size | None = None
    has_boxes: bool = False
    is_special: bool = False
    fences: tuple[str, ...] = FENCES
    is_plain: bool = False

    def texts(self, region: Region, size: Size, seen: Size | None = None) -> list[str]:
        """All drafts of a region as the model would write them, each once.

        Args:
            size: of the picture that the region's box is for.
            seen: width and height in which the model says boxes, where the form does not say.
        """
        texts = texts_of(region, self.style or MARKDOWN)
        return [self.element(region, text, size, seen) for text in texts]

    def element(self, region: Region, text: str, size: Size, seen: Size | None = None) -> str:
        """Returns a text in `style` with what the form puts around it."""
        return text

    def start(self, first: Region) -> str:
        """Returns what the model writes in front of the first region."""
        return ""

    def between(self, region: Region, following: Region) -> str:
        """Returns what it writes between two regions."""
        raise NotImplementedError

    def end(self, last: Region) -> str:
        """Returns what it writes behind the last region."""
        return ""

    def body(self, text: str) -> str:
        """Returns the Markdown or HTML of an answer without boxes."""
        return text

    def content(self, text: str) -> str:
        """Returns an answer about one region's crop, without what is not about it."""
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


def placed(box: Box, size: Size, frame: Size, maximum: int | None = None) -> tuple[int, ...]:
    """Returns a box in whole units of a frame, on the page.

    Args:
        size: of the picture that the box is for.
        maximum: the largest number that the form has, if that is less than the frame's side.
    """
    width, height = size
    x, y = frame[0] / max(width, 1), frame[1] / max(height, 1)
    sides = (math.floor(side + 0.5) for side in clipped(scaled(box, x, y), *frame))
    return tuple(side if maximum is None else min(side, maximum) for side in sides)


def stripped(text: str) -> str:
    """Returns a text without blanks at the ends of its lines, and without blank lines around it."""
    return re.sub(r"[ \t]+(?=\n|$)", "", text).strip()
