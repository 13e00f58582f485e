"""A batch that nobody joins ends with its slowest row: what drafts are worth there."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from sooner.methods.sizing.chain import AdaptiveDraftLength, DraftLength
from sooner.methods.sizing.closed import BatchRounds
from sooner.methods.sizing.costs import Acceptance, RoundCost
from sooner.methods.sizing.load import EXPLORE_EVERY

TOKENS = 96


def played(rows: int, rate: float, size: int, seed: int = 0) -> tuple[float, float]:
    """Rounds until a row has ended, in the mean over rows, and until all have; of 300 batches."""
    draw = np.random.default_rng(seed)
    generated = np.zeros((300, rows))
    ends = np.zeros((300, rows))
    for number in range(1, TOKENS + 1):
        goes_on = generated < TOKENS
        generated += 1 + np.minimum(draw.geometric(1 - rate, generated.shape) - 1, size)
        ends = np.where(goes_on, number, ends)
    return float(ends.mean()), float(ends.max(1).mean())


@pytest.mark.parametrize("rows", [2, 8, 32])
@pytest.mark.parametrize("rate", [0.5, 0.7, 0.9])
def test_rounds_are_those_that_batches_take(rows: int, rate: float) -> None:
    rounds = BatchRounds.of([TOKENS] * rows, [rate] * 8)
    for size in (1, 2, 4, 8):
        typical, slowest = played(rows, rate, size)
        assert rounds[size].typical == pytest.approx(typical, rel=0.01)
        assert rounds[size].slowest == pytest.approx(slowest, rel=0.04)


class Batch:
    """A closed batch on a made-up clock, whose rounds cost more the more they hold.

    Args:
        rate: that a draft token is accepted.
        rows: of the batch, `TOKENS` tokens each.
    """

    def __init__(self, rate: float, rows: int, seed: int) -> None:
        self.rate, self.rows, self.random = rate, rows, random.Random(seed)
        self.blocks: list[int] = []

    def stall(self) -> float:
        return self.random.lognormvariate(0, 0.05)

    def accepted(self, maximum: int) -> int:
        count = 0
        while count < maximum and self.random.random() < self.rate:
            count += 1
        return count

    def seconds(self, sizing: DraftLength, is_informed: bool = True) -> float:
        """What it takes to the end of the last row.

        Args:
            is_informed: the sizing knows what is left.
        """
        left, spent = dict.fromkeys(range(self.rows), TOKENS), 0.0
        while left:
            rows = list(left)
            remaining = list(left.values()) if is_informed else None
            sizes = sizing.choose(rows, left=remaining)
            drafted = [min(size, left[row] - 1) for row, size in zip(rows, sizes, strict=True)]
            accepted = [self.accepted(many) for many in drafted]
            block = 1 + max(drafted)
            drafting = (block - 1) * (0.8 + 0.09 * len(rows)) * self.stall()
            step = (7.5 + 0.24 * len(rows) + 0.094 * len(rows) * block) * self.stall()
            spent += drafting + step
            self.blocks.append(block)
            done = RoundCost(len(rows), block, drafting, block - 1, seconds=step)
            sizing.observe_cost(done, 1 + sum(accepted) / len(rows))
            for row, right in zip(rows, accepted, strict=True):
                left[row] -= 1 + right
            left = {row: many for row, many in left.items() if many > 0}
            stay = [
                entry for entry in zip(rows, drafted, accepted, strict=True) if entry[0] in left
            ]
            if stay:
                sizing.observe(*zip(*stay, strict=True))
        sizing.close()
        return spent


class Fixed(DraftLength):
    """Always `largest`; 0 is plain decoding."""


def total(
    sizings: Sequence[DraftLength], rate: float, rows: int, is_informed: bool = True
) -> float:
    return sum(
        Batch(rate, rows, seed).seconds(sizing, is_informed) for seed, sizing in enumerate(sizings)
    )


@pytest.mark.parametrize("rows", [8, 32])
@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
def test_a_closed_batch_is_no_slower_than_plain_and_near_the_best_length(
    rows: int, rate: float
) -> None:
    runs = 12
    best = min(total([Fixed(size)] * runs, rate, rows) for size in range(9))
    plain = total([Fixed(0)] * runs, rate, rows)
    known = Acceptance()
    total([AdaptiveDraftLength(16, experience=known)], rate, rows)
    ours = total([AdaptiveDraftLength(16, experience=known) for _ in range(runs)], rate, rows)
    assert plain / ours >= 0.97
    assert best / ours >= 0.92


@pytest.mark.parametrize(("rate", "rows", "is_worth"), [
    (0.3, 32, False), (0.4, 32, False), (0.8, 32, True), (0.3, 8, False), (0.8, 8, True),
])  # fmt: skip
def test_rows_that_begin_together_are_drafted_for_where_the_last_row_gains(
    rate: float, rows: int, is_worth: bool
) -> None:
    """Once a batch was seen, before the draft reads any prompt of the next; but for one in some."""
    known = Acceptance()
    for seed in range(3):
        sizing = AdaptiveDraftLength(16, experience=known)
        if sizing.takes_rows(100, TOKENS, [TOKENS] * rows):
            sizing.prefilled(100, 0.5, 1)
        else:
            assert seed, "nothing is known of the first"
        Batch(rate, rows, seed).seconds(sizing)
    decisions = [
        AdaptiveDraftLength(16, experience=known).takes_rows(100, TOKENS, [TOKENS] * rows)
        for _ in range(EXPLORE_EVERY)
    ]
    assert sum(decisions) == (EXPLORE_EVERY if is_worth else pytest.approx(0, abs=1))
