"""`PageWork`: a page under way, what is known of it so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...documents import Page, PageDraft
from ...engine.stats.run import Stats
from .contexts import Piece
from .decoding import DecodedRow, PageDecoder, stage_stats
from .model_inputs import Cells
from .result import ParsedPage, StageStats
from .stages import StageBudget


@dataclass
class PageWork:
    """Holds a page under way.

    Attributes:
        page: its picture.
        draft: what drafters say of it; empty for nothing.
        decoder: of the page.
        notes: what went wrong.
        inputs: the page as the model's inputs, of one row.
        size: width and height in which the model says boxes, if that can be told.
        cells: the model's raster of visual tokens over the page, if it has one.
        processor: seconds that the inputs took, those of crops, too.
        budget: of stage 1; `None` where what it reads is the result.
        pieces: regions for stage 1.
        output: of those that it read, by `Piece.place`.
        texts: by `Piece.place`, of crops that came to their end or as far as the budget went.
        stats: of the batches of stage 1.
        seconds: that it took.
    """

    page: Page
    draft: PageDraft
    decoder: PageDecoder
    notes: list[str]
    inputs: dict[str, Any] = field(default_factory=dict)
    size: tuple[int, int] | None = None
    cells: Cells | None = None
    processor: float = 0.0
    budget: StageBudget | None = None
    pieces: list[Piece] = field(default_factory=list)
    output: dict[int, DecodedRow] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    stats: Stats = field(default_factory=lambda: Stats(rows=0))
    seconds: float = 0.0

    @property
    def letters(self) -> int:
        """How many were drafted, the best draft of each region."""
        return sum(len(region.drafts[0]) for region in self.draft.regions if region.drafts)

    @property
    def width(self) -> int:
        """Returns the number of tokens of the prompt."""
        return int(self.inputs["input_ids"].shape[1])

    @property
    def drafter(self) -> str:
        """By whose name `HSD` keeps what it learns of the page's drafts; empty for nobody's."""
        name = self.draft.drafter
        # Where stage 1 read something, most drafts are the target's own.
        return f"{name}, read on crops" if name and self.stats.rows else name

    def parsed(self, *runs: Stats, stages: dict[str, StageStats], **fields: Any) -> ParsedPage:
        """Returns the page with what became of it.

        Args:
            runs: of stage 2.
            stages: figures of that.
            fields: of `ParsedPage`.
        """
        runs = (self.stats, *runs)
        first = {"regions": stage_stats(self.stats)} if self.stats.rows else {}
        return ParsedPage(
            source=self.page.source.name,
            number=self.page.number,
            size=self.page.size,
            drafter=self.draft.drafter,
            notes=self.notes,
            stages=first | stages,
            seconds={
                "processor": self.processor,
                "vision": sum(run.seconds["vision"] for run in runs),
                "prefill": sum(run.seconds["prefill"] for run in runs),
                "decode": sum(run.decode_seconds for run in runs),
                "regions": self.seconds,
            },
            **fields,
        )
