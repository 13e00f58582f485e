"""What a search is asked for and what it tries: MMInference's table 3, scaled to the sample."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from ..index import build
from ..modality import PromptLayout
from ..pairs import share
from ..patterns import AShape, BlockTopP, Dense, Grid, Pattern, VerticalSlash
from ..plane import whole
from ..probe import FIRST, LAST, NEAR

PAPER_TOKENS = 25_000
"""Length of the paper's calibration sample (appendix C.5), for which table 3's sizes are."""

FLAGS = (
    (True, False, False),
    (False, True, False),
    (False, False, True),
    (True, True, False),
    (False, True, True),
    (True, True, True),
)
"""`(hline, vline, slash)` of table 3."""

A_SHAPES = ((128, 1024), (128, 2048), (128, 4096))

VERTICAL_SLASHES = (
    (1000, 1024), (1000, 2048), (2000, 2048), (1000, 3096), (2000, 3096), (1000, 4096),
    (2000, 4096), (3500, 200), (1000, 2500),
)  # fmt: skip

TARGET = (1024, 4096)
"""Sink and local tokens of the A-shape whose cost is the paper's target."""

SMALLER = (1 / 4, 1 / 8, 1 / 16, 1 / 32)

SLIM = ((1000, 1024), (2000, 1024), (3500, 200))
"""Vertical-slashes that come in smaller sizes too."""

THRESHOLDS = (0.5, 0.7, 0.8, 0.9, 0.95)
"""Thresholds of blocks, which no table of the paper has."""

WINDOWED = (128, 1024)
"""Sink and local tokens of the grids that have them: those of the smallest A-shape."""


@dataclass(frozen=True)
class Space:
    """The candidates that a sample of a length has.

    Table 3's sizes are for prompts of `PAPER_TOKENS`. A shorter sample gets the same shares of its
    own length, so that candidates are as sparse there as the paper's are on its sample; strides are
    those of the input and are not scaled. Beyond table 3 there are, because each costs little and
    real heads ask for it: grids with a sink and a local window (those of the smallest A-shape),
    blocks by thresholds, smaller A-shapes and vertical-slashes, for samples on which the table's
    sizes exceed the budget, and A-shapes whose last queries see everything, for heads that are
    local until a question comes.

    Attributes:
        tokens: length of the shortest sample.
        has_frames: whether there is a video, whose frames are a stride.
    """

    tokens: int
    has_frames: bool = True

    @property
    def scale(self) -> float:
        """Returns sizes here as a share of table 3's."""
        return min(1.0, self.tokens / PAPER_TOKENS)

    def size(self, tokens: int, factor: float = 1.0) -> int:
        """Returns a size of table 3 on this sample."""
        return max(round(tokens * self.scale * factor), 1)

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """Returns all candidates, each once, `Dense` first."""
        blocks = [BlockTopP(threshold) for threshold in THRESHOLDS]
        result = [Dense(), *self._grids(), *self._shapes(), *self._lines(), *blocks]
        return tuple(dict.fromkeys(result))

    def target(self, layout: PromptLayout) -> float:
        """Returns the budget of appendix C.5 as a share of dense attention's pairs."""
        plane = whole(layout)
        shape = AShape(*map(self.size, TARGET))
        return float(share(build([shape], plane, None), plane)[0])

    @property
    def target_shape(self) -> Pattern:
        """The candidate whose kernel is that of the budget's A-shape: the largest."""
        return AShape(*map(self.size, A_SHAPES[-1]))

    def _grids(self) -> list[Pattern]:
        windows = [(0, 1), (self.size(WINDOWED[0]), self.size(WINDOWED[1]))]
        made: list[Pattern] = []
        strides = ("frame", "auto") if self.has_frames else ("auto",)
        for stride, (sink, local), flags in itertools.product(strides, windows, FLAGS):
            lines = dict(zip(("hline", "vline", "slash"), flags, strict=True))
            made.append(Grid(stride, **lines, sink=sink, local=local))  # type: ignore[arg-type]
        return made

    def _shapes(self) -> list[Pattern]:
        sizes = [(sink, local, 1.0) for sink, local in A_SHAPES]
        sizes += [(*A_SHAPES[0], factor) for factor in SMALLER[:2]]
        return [
            AShape(self.size(sink, f), self.size(local, f), bottom)
            for bottom in (0, LAST)
            for sink, local, f in sizes
        ]

    def _lines(self) -> list[Pattern]:
        sizes = [(vertical, slash, 1.0) for vertical, slash in VERTICAL_SLASHES]
        sizes += [(*size, f) for f in SMALLER for size in SLIM]
        # A pattern's first keys and nearest distances are there in any case, and not scaled.
        return [
            VerticalSlash(
                FIRST + self.size(vertical - FIRST, f), NEAR + self.size(max(slash - NEAR, 0), f)
            )
            for vertical, slash, f in sizes
        ]
