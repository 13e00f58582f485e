"""How many rounds a closed batch takes: rows of known lengths, which nobody replaces (static
batching).

A server's rows make room for others as they end, so that what counts is what a row gives on
average. A batch that was asked for as one, such as actions of robots or codes of pictures, ends
with its slowest row. Rows are taken to be alike: a few rounds do not tell them apart, and one that
was guessed to be slow would count for all. With `l` tokens left to a row, and `m` tokens a round
with variance `v`, it takes about `l / m` rounds with variance `v l / m^3`, and a little more for
what its last round says too much (a renewal process). Plain decoding takes as many rounds as the
longest text has tokens, however many rows there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean


@dataclass(frozen=True)
class BatchRounds:
    """Rounds that a closed batch takes.

    Attributes:
        typical: until a row has ended, in the mean over rows.
        slowest: until all have.
    """

    typical: float
    slowest: float

    @staticmethod
    def of(left: Sequence[int], chances: Sequence[float]) -> list[BatchRounds]:
        """Returns expected rounds with `0 .. n` draft tokens a round.

        Args:
            left: tokens that each row has yet to say.
            chances: that the draft token at each of `n` depths is accepted where those before it
                are.
        """
        mean, longest, last = fmean(left), max(left), last_of(len(left))
        result, reached, tokens, squares = list[BatchRounds](), 1.0, 1.0, 0.0
        for depth in range(len(chances) + 1):
            if depth:
                reached *= chances[depth - 1]
                tokens += reached
                squares += (2 * depth - 1) * reached  # of the accepted tokens
            variance = max(squares - (tokens - 1) ** 2, 0.0)
            # Behind the last token the round says more, by the renewal theorem (m + v/m - 1) / 2.
            typical = (mean + (tokens + variance / tokens - 1) / 2) / tokens
            # What the longest text is behind for sure, and what the last of so many is by chance.
            spread = math.hypot(
                (longest - mean) / tokens, last * math.sqrt(variance * typical) / tokens
            )
            result.append(BatchRounds(typical, typical + spread))
        return result


def rounds_to_the_end(left: Sequence[int], chances: Sequence[float], fewer: float) -> list[float]:
    """Returns rounds until the last row has ended, with `0 .. n` draft tokens, in rounds of all
    rows.

    Args:
        left, chances: as of `BatchRounds.of`.
        fewer: time of a round of half of the rows, over that of all: what a round takes, more or
            less, of those that are left behind the typical row's end.
    """
    return [
        entry.typical + fewer * (entry.slowest - entry.typical)
        for entry in BatchRounds.of(left, chances)
    ]


def last_of(count: int) -> float:
    """Expected largest of `count` standard normal numbers (Blom 1958, to 6 %)."""
    return NormalDist().inv_cdf((count - math.pi / 8) / (count - math.pi / 4 + 1))
