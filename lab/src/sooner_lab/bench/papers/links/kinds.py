"""What links a paper's figures to ours, and the reasons where nothing does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TRAINED, REPLAY, PLANTED, ANALYTIC = "trained", "replay", "planted", "analytic"
REGIMES = {
    TRAINED: "models trained here, all of the method at work, on two CPU cores",
    REPLAY: "real decoders, drafts and clocks; a script says which tokens the target wants",
    PLANTED: "one layer on states made with the structure that is looked for",
    ANALYTIC: "calculated from the paper's own step times and run lengths: a test of our model of "
    "the pipeline, not of our speed",
    "gpu": "kernels and models on a GPU",
}
"""How our figures come about."""

GPU = "needs a GPU"
CHECKPOINTS = "needs the published checkpoints"
NOT_YET = "not measured yet"
UNLIKE = "not comparable"
REPEATS = "repeats another table"
DIRTY = "not of a clean revision"
NO_FIGURE = "no figure at the key"
REASONS = (GPU, CHECKPOINTS, NOT_YET, UNLIKE, REPEATS, DIRTY, NO_FIGURE)


@dataclass(frozen=True)
class Key:
    """Where a figure of ours stands, and what makes it the paper's quantity and unit.

    Attributes:
        key: in the result, see `readme.value_at`.
        minus: another key, whose figure is taken off.
        plus, times: added, then multiplied by.
    """

    key: str
    minus: str = ""
    plus: float = 0.0
    times: float = 1.0

    def __str__(self) -> str:
        text = f"{self.key} - {self.minus}" if self.minus else self.key
        text += f" {self.plus:+g}" if self.plus else ""
        return f"({text}) * {self.times:.6g}" if self.times != 1 else text


@dataclass(frozen=True)
class Comparison:
    """Rows of one column held against ours.

    Attributes:
        item, group, column: of the paper.
        quantity: what ours counts; has to be what the column counts.
        result: the file in the folder of results, without `.json`; `theory` is calculated.
        regime: a key of `REGIMES`.
        how: on what, in a few words; `{KEY}` is the figure there.
        arms: row of the paper -> our key.
        only_order: why the figures are not put beside each other, but their order is judged.
        why: why the order fails, if it does.
    """

    item: str
    group: str
    column: str
    quantity: str
    result: str
    regime: str
    how: str
    arms: Mapping[str, str | Key]
    only_order: str = ""
    why: str = ""


@dataclass(frozen=True)
class Reason:
    """Why rows have no figure of ours: one of `REASONS`, and a few words."""

    kind: str
    report: str


@dataclass(frozen=True)
class Links:
    """All links of a paper.

    Attributes:
        comparisons: in the page's order.
        reasons: by item, `item / group` or `item / group / row`; the longest counts.
    """

    comparisons: tuple[Comparison, ...]
    reasons: Mapping[str, Reason]

    def reason(self, item: str, group: str, row: str) -> Reason | None:
        """Why a row has no figure."""
        for key in (f"{item} / {group} / {row}", f"{item} / {group}", item):
            if key in self.reasons:
                return self.reasons[key]
        return None
