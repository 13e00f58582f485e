"""What `sooner bench documents` measures, its gate and its goals; fixed before any result."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sooner.checks import check_whole
from sooner.errors import SoonerError

from .wear import Wear
from .writer import KINDS

WEARS = {
    "clean": Wear(150, 70, 0.0, 0.5, 0, 0.0),
    "fair": Wear(150, 60, 0.5, 1.0, 2, 0.05),
    "poor": Wear(100, 50, 0.6, 1.5, 3, 0.1),
    "bad": Wear(100, 30, 1.0, 1.5, 5, 0.2),
}
"""From hardly worn to hardly legible; figure 3 has them all."""

WEAR = "fair"
"""At which pages are judged: that at which `paper-literal` comes closest to `PAPER_AAL`. Found on
the first page of each kind of seed 7, which no result has: 4,728 tokens took 434 forwards clean
(AAL 9.9), 1,119 fair (3.2), and 1,296 at JPEG 40, blur 0.8 and 1.5 degrees (2.6). `--calibrate`
does the same."""

PAPER_AAL = 3.5
"""AAL of the paper with the page alone (table 8, 3.49), which drafts here have to allow, too."""

AAL_RANGE = (2.5, 4.5)
"""The gate: `paper-literal` within it, or drafts are not like the paper's and nothing is judged."""

ORACLE_AAL, BLIND_AAL = 30.0, 0.5
"""The gate: `hsd-page` at least so many with the page's truth as drafts, at most so many with the
text of another page."""

COUNTED = ("plain", "paper-literal", "paper-literal-both", "hsd-page", "hsd", "hsd-unsure")
"""Arms that are counted."""

DRAFTERS = ("ocr", "truth", "other", "letters 0.01", "letters 0.03", "letters 0.1")
EPSILONS = (0.0, 0.01, 0.03, 0.1)

HIERARCHY = 1.0
"""Goal: `hsd` over `hsd-page` by the priced clock, at epsilon 1 %, lower bound of the interval; so
for `hsd-unsure`, too, which reads in stage 1 what OCR is unsure of, as `sooner parse` does."""

OVER_LITERAL = 1.0
"""Goal: `hsd-page` over `paper-literal` by forwards of the page, lower bound of the interval."""

KEPT = 0.8
"""Goal: share of the accepted length that drafts of boxes +- 3 px keep, at least."""

BOX_PIXELS = 3


@dataclass(frozen=True)
class DocumentsSettings:
    """What is measured.

    Attributes:
        pages: that are counted, of all kinds in turn.
        arms: that are counted, of `COUNTED`; without `paper-literal` there is nothing to hold the
            gate's drafts against, and they are not read either.
        timed: of them that are timed on the decoder of `layers` x `width`.
        kinds: of `writer.KINDS`.
        wear: of `WEARS`, for every part but figure 3.
        curve_pages: of figure 3 and of the curve over epsilon.
        box_pages: of the part about boxes.
        reader_pages: that a trained reader reads whole and by regions, see `measured_epsilon`.
        reader: its checkpoint folder; `None` is the bundled miniature, whose pages are short.
        visual, pruned: tokens of a page's picture, and of a pruned one.
        epsilon: rate of `RegionNoise` where it is not varied.
        runaway: of `RegionNoise`.
        nodes: of the trees that are counted; those that are timed are sized by measurement.
        layers, width: of the target that is timed. With 24 layers a page took 4 to 9 minutes, so
            that twelve were never timed; no such reading was kept.
        count_layers, count_width: of the one that is counted; counts do not depend on it.
        calibrate: only find the acceptance of every wear.
        drafts: folder in which OCR's drafts are kept from run to run.
        prices: file of step times; `None` is `prices.Prices.assumed`.
        threads, seed: as everywhere.
    """

    pages: int = 100
    arms: tuple[str, ...] = COUNTED
    timed: int = 12
    kinds: tuple[str, ...] = KINDS
    wear: str = WEAR
    curve_pages: int = 24
    box_pages: int = 24
    reader_pages: int = 40
    visual: int = 1500
    pruned: int = 300
    epsilon: float = 0.01
    runaway: float = 0.005
    nodes: int = 64
    layers: int = 12
    width: int = 256
    count_layers: int = 1
    count_width: int = 32
    calibrate: bool = False
    drafts: Path | None = None
    reader: Path | None = None
    prices: Path | None = None
    threads: int = 1
    seed: int = 20_261_123
    wears: tuple[str, ...] = field(default=tuple(WEARS))

    def check(self) -> None:
        """Refuse what can't be measured.

        Raises:
            SoonerError: the first value that makes no sense.
        """
        check_whole("pages", self.pages, least=0)
        for name in ("visual", "pruned", "nodes", "layers", "count_layers"):
            check_whole(name, getattr(self, name))
        for name in ("width", "count_width"):
            if getattr(self, name) % 32:
                raise SoonerError(f"{name} is {getattr(self, name)}; give a multiple of 32")
        if self.wear not in WEARS:
            raise SoonerError(f"wear '{self.wear}' is unknown; known: {', '.join(WEARS)}")

    def page_of(self, place: int) -> tuple[str, int]:
        """Kind and number of the page at a place of the sample."""
        return self.kinds[place % len(self.kinds)], 1 + place // len(self.kinds)
