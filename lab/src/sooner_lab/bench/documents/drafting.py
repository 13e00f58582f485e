"""Drafts of written pages: real OCR of worn scans, and truths with errors of a known rate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from sooner.documents import Page, PageDraft, Region
from sooner.documents.drafters import PageDrafter
from sooner.documents.regions import TABLE, Box, around, numbered, scaled

from ..parse.damage import misspelt
from .wear import Wear, turned, worn
from .writer import POINT, WrittenPage, WrittenRegion, joined, pixels, write_page

CROP_MARGIN = 2.0
"""Pixels by which a line's middle may be outside of a crop that shows it."""


@dataclass(frozen=True)
class ScannedPage:
    """A written page as a scan, with where its lines are on it.

    Attributes:
        written: what it says.
        picture: worn, `[height, width, 3]`.
        wear: how.
        boxes: of each region's lines, in pixels.
    """

    written: WrittenPage
    picture: np.ndarray
    wear: Wear
    boxes: tuple[tuple[Box, ...], ...]

    @property
    def size(self) -> tuple[int, int]:
        return pixels(self.wear.dpi)

    @property
    def page(self) -> Page:
        """As a drafter gets it."""
        name = f"{self.written.kind}-{self.written.number}.png"
        return Page(Path(name), 1, self.picture, float(self.wear.dpi), self.size)

    def truth(self) -> PageDraft:
        """Its regions with boxes where they are on the scan."""
        draft = self.written.truth(self.wear.dpi)
        places = [around(lines) for lines in self.boxes]
        regions = [
            replace(one, bbox=place) for one, place in zip(draft.regions, places, strict=True)
        ]
        return replace(draft, regions=regions)

    def shown(self, box: Box) -> list[Region]:
        """What a crop shows: regions with those lines alone whose middle is in it."""
        x0, y0, x1, y1 = box
        found = []
        for region, places in zip(self.written.regions, self.boxes, strict=True):
            lines = []
            for line, place in zip(region.lines, places, strict=True):
                x, y = (place[0] + place[2]) / 2, (place[1] + place[3]) / 2
                if x0 - CROP_MARGIN <= x <= x1 + CROP_MARGIN and y0 <= y <= y1:
                    lines.append(line.text)
            if lines:
                found.append(_part(region, lines))
        return numbered(found)


def _part(region: WrittenRegion, lines: Sequence[str]) -> Region:
    return Region(None, region.label, 0, [joined(region.label, lines)], region.level)


def scan(kind: str, number: int, wear: Wear, seed: int) -> ScannedPage:
    """A page and its scan, always the same for the same arguments."""
    written = write_page(kind, number, seed)
    rng = np.random.default_rng([seed, 1, number, len(kind)])
    picture, angle = worn(written.draw(wear.dpi), wear, rng)
    scale = wear.dpi / POINT
    boxes = tuple(
        tuple(
            turned(
                [scaled(line.box, scale, scale) for line in region.lines], angle, pixels(wear.dpi)
            )
        )
        for region in written.regions
    )
    return ScannedPage(written, picture, wear, boxes)


def merged(draft: PageDraft, share: float, rng: np.random.Generator) -> PageDraft:
    """The draft with some regions merged with the one behind them, as layout models do."""
    found: list[Region] = []
    for region in draft.regions:
        last = found[-1] if found else None
        if (
            last is not None
            and last.bbox is not None
            and region.bbox is not None
            and TABLE not in (last.label, region.label)
            and last.drafts
            and region.drafts
            and rng.random() < share
        ):
            text = f"{last.drafts[0]}\n\n{region.drafts[0]}"
            found[-1] = replace(last, bbox=around([last.bbox, region.bbox]), drafts=[text])
        else:
            found.append(region)
    return replace(draft, regions=numbered(found))


def off_by(draft: PageDraft, pixels: int, rng: np.random.Generator) -> PageDraft:
    """The draft with each side of its boxes moved by up to so many whole pixels."""
    regions = []
    for region in draft.regions:
        if region.bbox is not None:
            x0, y0, x1, y1 = (
                max(float(side + move), 0.0)
                for side, move in zip(
                    region.bbox, rng.integers(-pixels, pixels + 1, 4), strict=True
                )
            )
            region = replace(region, bbox=(x0, y0, max(x1, x0 + 1), max(y1, y0 + 1)))
        regions.append(region)
    return replace(draft, regions=regions)


@dataclass
class Drafts:
    """Makes drafts by name, and keeps OCR's in a folder.

    Names are `ocr`, `truth` (the oracle), `other` (another page of the same kind: the blind one),
    and `letters 0.03`: the truth with such a share of its letters read wrongly.

    Attributes:
        ocr: the library's drafter.
        seed: of pages and damage.
        folder: where what OCR read is kept; `None` keeps nothing.
    """

    ocr: PageDrafter | None
    seed: int
    folder: Path | None = None
    _known: dict[str, PageDraft] = field(default_factory=dict)

    def __call__(self, name: str, scanned: ScannedPage) -> PageDraft:
        written, wear = scanned.written, scanned.wear
        rng = np.random.default_rng([self.seed, 2, written.number, len(written.kind)])
        if name == "ocr":
            return merged(self._read(scanned), wear.merged, rng)
        if name == "other":
            other = scan(written.kind, written.number + 100_000, wear, self.seed)
            return replace(other.truth(), drafter="other")
        kind, _, rate = name.partition(" ")
        truth = scanned.truth()
        if kind == "letters":
            return replace(misspelt(truth, float(rate), rng), drafter=name)
        assert name == "truth", name
        return truth

    def _read(self, scanned: ScannedPage) -> PageDraft:
        written, wear = scanned.written, scanned.wear
        parts = (written.kind, written.number, self.seed, wear.dpi, wear.jpeg, wear.blur)
        key = "-".join(str(one) for one in (*parts, wear.skew, wear.stains))
        if key not in self._known:
            path = None if self.folder is None else self.folder / f"{key}.json"
            if path is not None and path.is_file():
                self._known[key] = PageDraft.from_json(json.loads(path.read_text()))
            else:
                assert self.ocr is not None
                self._known[key] = self.ocr(scanned.page)
                if path is not None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(json.dumps(self._known[key].to_json()))
        return self._known[key]
