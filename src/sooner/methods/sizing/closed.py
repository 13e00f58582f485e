"""How many rounds a closed batch takes: rows of known lengths, which nobody replaces.

A server's rows make room for others as they end, so that what counts is what a row gives on
average. A batch that was asked for as one, such as actions of robots or codes of pictures, ends
with its slowest row. With `l_i` tokens left to row `i`, which says `m_i` tokens a round with
variance `v_i`, row `i` takes about `l_i / m_i` rounds with variance `v_i l_i / m_i^3`, and a little
more for what its last round says too much (a renewal process). Plain decoding takes as many rounds
as the longest text has tokens, however many rows there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class BatchRounds:
    """Rounds that a closed batch takes with `0 .. n` draft tokens a round.

    Attributes:
        typical: until a row has ended, in the mean over rows, `[n + 1]`.
        slowest: until all have, `[n + 1]`.
    """

    typical: NDArray[np.float64]
    slowest: NDArray[np.float64]

    @staticmethod
    def of(left: Sequence[int], chances: Sequence[Sequence[float]]) -> BatchRounds:
        """Expected rounds.

        Args:
            left: tokens that each row has yet to say.
            chances: that the draft token of a row at a depth is accepted where those before it are,
                `[rows, n]`.
        """
        reached = np.cumprod(chances, 1)
        accepted, squares = (
            np.pad(np.cumsum(part, 1), ((0, 0), (1, 0)))
            for part in (reached, (2 * np.arange(reached.shape[1]) + 1) * reached)
        )
        said, variance = 1 + accepted, np.maximum(squares - accepted**2, 0.0)
        # Behind the last token the round says more, by the renewal theorem (m + v/m - 1) / 2.
        beyond = (said + variance / said - 1) / 2
        each = (np.asarray(left)[:, None] + beyond) / said
        typical = each.mean(0)
        scatter = np.sqrt((variance * each / said**2).mean(0))
        # What some are behind for sure, and what the last of so many is by chance.
        behind = np.hypot(each.max(0) - typical, last_of(len(left)) * scatter)
        return BatchRounds(typical, typical + behind)


def rounds_to_the_end(
    left: Sequence[int], chances: Sequence[Sequence[float]], fewer: float
) -> list[float]:
    """Rounds until the last row has ended, with `0 .. n` draft tokens, in rounds of all rows.

    Args:
        left, chances: as of `BatchRounds.of`.
        fewer: time of a round of half of the rows, over that of all: what a round takes, more or
            less, of those that are left behind the typical row's end.
    """
    rounds = BatchRounds.of(left, chances)
    lasts: list[float] = (rounds.typical + fewer * (rounds.slowest - rounds.typical)).tolist()
    return lasts


def last_of(count: int) -> float:
    """Expected largest of `count` standard normal numbers (Blom 1958, to 6 %)."""
    return NormalDist().inv_cdf((count - math.pi / 8) / (count - math.pi / 4 + 1))
