"""Regions of a page with what drafters read in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..errors import SoonerError
from .boxes import Box, box, clipped, scaled
from .labels import LABELS, TEXT, label_of

Size = tuple[int, int]
"""Width and height of a page's picture, in pixels."""


@dataclass(frozen=True)
class Region:
    """A part of a page (`r_i` of section 3.1) with its drafts (`y~(i,k)`).

    Drafts are as they were read: lines end in `\\n`, cells of a table in tabs or tables in HTML,
    formulas in LaTeX. `serialise` writes them as a target would.

    Attributes:
        bbox: in pixels of the page's picture; `None` if nobody knows where the text is.
        label: one of `labels.LABELS`.
        order: place in reading order, from 0.
        drafts: texts, the best first. None if the region has no text, such as a picture.
        level: of a heading, 1 for the highest; 0 for unknown.
        confidence: of the drafter that its first draft is right, from 0 to 1; `None` for unknown.
    """

    bbox: Box | None
    label: str = TEXT
    order: int = 0
    drafts: list[str] = field(default_factory=list)
    level: int = 0
    confidence: float | None = None

    def __post_init__(self) -> None:
        if self.label not in LABELS:
            raise SoonerError(f"region label '{self.label}' is unknown; known: {', '.join(LABELS)}")
        if self.bbox is not None:
            object.__setattr__(self, "bbox", box(self.bbox))

    def thousandths(self, size: Size) -> tuple[int, int, int, int] | None:
        """The box in thousandths of the page's width and height, whole numbers."""
        if self.bbox is None:
            return None
        width, height = size
        place = scaled(self.bbox, 1000 / max(width, 1), 1000 / max(height, 1))
        x0, y0, x1, y1 = clipped(place, 1000, 1000)
        return math.floor(x0), math.floor(y0), math.ceil(x1), math.ceil(y1)

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` reads it."""
        return {
            "bbox": None if self.bbox is None else list(self.bbox),
            "label": self.label,
            "order": self.order,
            "level": self.level,
            "drafts": list(self.drafts),
            "confidence": self.confidence,
        }

    @classmethod
    def from_json(cls, data: Any) -> Region:
        """Read `to_json`'s data, or `{bbox, label, order, drafts}` written by another program.

        Raises:
            SoonerError: it is no such thing.
        """
        if not isinstance(data, dict):
            raise SoonerError(f"a region is {str(data)[:40]!r}; it must be an object")
        unknown = set(data) - {field.name for field in fields(cls)}
        if unknown:
            raise SoonerError(f"a region has the unknown key '{min(unknown)}'")
        drafts = data.get("drafts", [])
        if not isinstance(drafts, list) or not all(isinstance(draft, str) for draft in drafts):
            raise SoonerError("a region's drafts must be a list of texts")
        return cls(
            bbox=None if data.get("bbox") is None else box(data["bbox"]),
            label=label_of(str(data.get("label", TEXT))),
            order=int(data.get("order", 0)),
            drafts=list(drafts),
            level=int(data.get("level", 0)),
            confidence=None if data.get("confidence") is None else float(data["confidence"]),
        )


@dataclass(frozen=True)
class PageDraft:
    """What a drafter says of a page.

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

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` reads it."""
        return {
            "drafter": self.drafter,
            "seconds": self.seconds,
            "size": list(self.size),
            "reason": self.reason,
            "regions": [region.to_json() for region in self.regions],
        }

    @classmethod
    def from_json(cls, data: Any) -> PageDraft:
        """Read `to_json`'s data.

        Raises:
            SoonerError: it is no such thing.
        """
        if not isinstance(data, dict) or not isinstance(data.get("regions"), list):
            raise SoonerError("a page draft must be an object with a list of regions")
        width, height = data.get("size", (0, 0))
        return cls(
            regions=[Region.from_json(region) for region in data["regions"]],
            seconds=float(data.get("seconds", 0.0)),
            drafter=str(data.get("drafter", "")),
            size=(int(width), int(height)),
            reason=str(data.get("reason", "")),
        )


def numbered(regions: Sequence[Region]) -> list[Region]:
    """The same regions, their order set to their places in the list."""
    return [replace(region, order=place) for place, region in enumerate(regions)]
