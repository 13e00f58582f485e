"""The result of a parsed page, and the page counts of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import repeat
from typing import Any, TypeVar

from ...documents import Region
from ...documents.regions import Size

T = TypeVar("T")


@dataclass
class Counts:
    """Holds pages of a run.

    Attributes:
        total: to be done in this run, of the documents opened so far.
        documents, opened: of the run, and how many it has opened: each when its turn comes.
        done, partial, failed: of these, so far; partial ones are done, too.
        before: done in earlier runs.
        aside: not tried again, since processes died at them.
        seconds: that these took, the loading of the model left out.
    """

    total: int = 0
    documents: int = 0
    opened: int = 0
    done: int = 0
    partial: int = 0
    failed: int = 0
    before: int = 0
    aside: int = 0
    seconds: float = 0.0

    def add(self, status: str, seconds: float) -> None:
        """A page was done."""
        self.failed += status == FAILED
        self.done += status != FAILED
        self.partial += status == PARTIAL
        self.seconds += seconds
        self.total = max(self.total, self.done + self.failed)

    @property
    def pages_per_second(self) -> float:
        return (self.done + self.failed) / self.seconds if self.seconds else 0.0

    @property
    def is_total_known(self) -> bool:
        """Whether all documents are opened."""
        return self.opened >= self.documents

    @property
    def expected(self) -> float:
        """Pages in all, should the other documents be as long as those opened so far."""
        return self.total * max(self.documents / max(self.opened, 1), 1.0)

    @property
    def seconds_left(self) -> float | None:
        """Returns an estimate; `None` before the first page."""
        speed = self.pages_per_second
        return max(self.expected - self.done - self.failed, 0.0) / speed if speed else None


SUCCESS, PARTIAL, FAILED = "SUCCESS", "PARTIAL", "FAILED"

DRAFT, DRAFTED = "DRAFT", "draft"
"""Status and mode of a page that no model was asked about, and the reason for it."""

NOT_VERIFIED = "not verified by a model; name one with --model"

REPETITION, LENGTH, TIME, BUDGET = "repetition", "length", "time", "budget"


@dataclass(frozen=True)
class ParsedRegion:
    """Holds a part of a page as the target wrote it.

    Attributes:
        order: place in reading order, from 0.
        label: one of `sooner.documents.regions.Label`.
        text: in the target's own form.
        bbox: in pixels of the page's picture; `None` if nobody said where the text is.
        bbox_1000: the same in thousandths of the page's width and height.
        acceptance: share of its tokens that were drafted; `None` if that can't be told.
        level: of a heading, 1 for the highest; 0 for unknown.
        picture: name of the PNG file of its cut-out, in its document's folder; empty without.
    """

    order: int
    label: str
    text: str
    bbox: tuple[float, float, float, float] | None = None
    bbox_1000: tuple[int, int, int, int] | None = None
    acceptance: float | None = None
    level: int = 0
    picture: str = ""


def parsed_regions(
    regions: Iterable[Region], size: Size, shares: Iterable[float | None] = repeat(None)
) -> list[ParsedRegion]:
    """Returns regions in reading order, each with its first draft for its text.

    Args:
        size: of the page's picture, in pixels.
        shares: of their tokens that were drafted; `None` if that can't be told.
    """
    return [
        ParsedRegion(
            order=order,
            label=region.label,
            text=region.drafts[0] if region.drafts else "",
            bbox=region.bbox,
            bbox_1000=region.thousandths(size),
            acceptance=share,
            level=region.level,
        )
        for order, (region, share) in enumerate(zip(regions, shares, strict=False))
    ]


@dataclass(frozen=True)
class StageStats:
    """Holds one stage in figures; see `sooner.engine.stats.run.Stats`."""

    rows: int = 0
    tokens: int = 0
    steps: int = 0
    mode: str = "exact"
    mean_acceptance_length: float = 0.0
    aal: float = 0.0
    decode_seconds: float = 0.0
    tokens_per_second: float = 0.0


TUPLES = ("bbox", "bbox_1000", "size")

FIGURES = ("stages", "seconds", "compared", "set_aside")
"""Attributes of a page that tell how it was parsed and how long that took, not what is on it."""


@dataclass(frozen=True)
class ParsedPage:
    """Holds a page's text and how it came about.

    Attributes:
        source: name of its document.
        number: of the page, from 1; 0 for what is about the document as a whole.
        status: `SUCCESS`, `PARTIAL` (something is missing, see `reason`), `FAILED`, or `DRAFT` (no
            model was named to verify what the drafter said).
        reason: why, in one line; empty for success.
        markdown: blocks separated by blank lines.
        raw: what the target said, to the letter.
        form: that of `raw`, of `families.FORMS`.
        regions: in reading order.
        size: width and height of the page's picture, in pixels.
        truncated: `repetition`, `length` or `time` if the target did not come to an end. Such
            pages are never part of a figure about speed.
        set_aside: it failed, since processes died at it, and is not tried again.
        repaired: the target's answer was not in its form, and was read as far as possible. That is
            outside the claim of exactness; `raw` is inside.
        drafter: who drafted; empty for nobody.
        notes: what else should be known, such as a drafter that failed.
        mode: `exact`, `relaxed`, `approximate` or `draft`.
        prefill: figures of the page's sparse prefill; `None` without one.
        stages: figures of the stages that ran, `regions` and `page`.
        seconds: `read` (opening the document and drawing the page), `drafter` (its own time, mostly
            hidden behind the page before), `wait` (for the page and its draft), `processor` (its
            inputs, crops and drafts as tokens), `vision`, `prefill`, `decode`, `regions` (all of
            stage 1, contained in the others), `e2e` (from the page before to this one's end) and
            `write` (the page's files and pictures).
        compared: with plain decoding, see `comparison.compare_plain`; `None` if nobody asked.
    """

    source: str
    number: int
    status: str = SUCCESS
    reason: str = ""
    markdown: str = ""
    raw: str = ""
    form: str = "markdown"
    regions: list[ParsedRegion] = field(default_factory=list)
    size: tuple[int, int] = (0, 0)
    truncated: str | None = None
    set_aside: bool = False
    repaired: bool = False
    drafter: str = ""
    notes: list[str] = field(default_factory=list)
    mode: str = "exact"
    prefill: dict[str, Any] | None = None
    stages: dict[str, StageStats] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    compared: dict[str, Any] | None = None

    @property
    def last(self) -> StageStats:
        """Figures of the stage that the result is from."""
        return self.stages.get("page") or self.stages.get("regions") or StageStats()

    @property
    def counts_for_speed(self) -> bool:
        return self.status != FAILED and self.truncated is None

    def to_json(self) -> dict[str, Any]:
        """Returns plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ParsedPage:
        """Returns the page of such data; what is missing is by default, what is unknown left out.

        Raises:
            KeyError, TypeError: it is no page.
        """
        regions = [_made(ParsedRegion, region) for region in data.get("regions", ())]
        stages = data.get("stages", {}).items()
        figures = {name: _made(StageStats, stage) for name, stage in stages}
        return _made(cls, data, regions=regions, stages=figures)


def _made(kind: type[T], data: Mapping[str, Any], **values: Any) -> T:
    """Returns a dataclass of plain data, in which its tuples are lists, and of further values."""
    known = {name: data[name] for name in kind.__annotations__ if name in data}
    tuples = {name: tuple(known[name]) for name in TUPLES if known.get(name) is not None}
    return kind(**{**known, **tuples, **values})
