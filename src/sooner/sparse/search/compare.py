"""A searched row of heads against one vertical-slash for all, at equal FLOPs (MInference)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..attention import States
from ..modality import Layout
from ..patterns import HeadPattern, VerticalSlash
from ..patterns.vertical_slash import FIRST, NEAR
from .score import Trial, trial

RATIOS = (0.25, 1.0, 4.0)
"""Vertical lines for each slash line, of the vertical-slashes that are tried."""


@dataclass(frozen=True)
class Duel:
    """Errors at equal FLOPs.

    Attributes:
        ours, theirs: relative output error over all heads together.
        our_share, their_share: of dense attention's pairs, mean over heads.
        rival: the vertical-slash, the best of those that cost as much.
    """

    ours: float
    theirs: float
    our_share: float
    their_share: float
    rival: VerticalSlash


def against_vertical_slash(
    states: States, layout: Layout, patterns: Sequence[HeadPattern], queries: int = 128
) -> Duel:
    """Compare patterns with the best uniform vertical-slash of the same FLOPs.

    For several ratios of vertical to slash lines, the fewest lines are found that cost 99 % of what
    `patterns` do, or more: slash lines come in blocks. The rival is the one of least error.

    Args:
        patterns: one for each head.
        queries: of each modality that are asked.
    """
    heads = states.queries.shape[0]
    mine = trial(states, layout, patterns, queries)
    wanted = float(mine.cost.mean())
    found: list[tuple[float, Trial, VerticalSlash]] = []
    for ratio in RATIOS:
        low, high = -1, len(layout)
        theirs = trial(states, layout, [_sized(high, ratio)] * heads, queries)
        best = (float(theirs.cost.mean()), theirs, _sized(high, ratio))
        while high - low > 1:  # the fewest lines that cost as much
            middle = (low + high) // 2
            rival = _sized(middle, ratio)
            theirs = trial(states, layout, [rival] * heads, queries)
            is_enough = float(theirs.cost.mean()) >= 0.99 * wanted
            low, high = (low, middle) if is_enough else (middle, high)
            if is_enough:
                best = (float(theirs.cost.mean()), theirs, rival)
        found.append(best)
    cost, theirs, rival = min(found, key=lambda one: _total(one[1]))
    return Duel(_total(mine), _total(theirs), wanted, cost, rival)


def _sized(lines: int, ratio: float) -> VerticalSlash:
    return VerticalSlash(FIRST + round(lines * ratio), NEAR + lines)


def _total(measured: Trial) -> float:
    """Relative error of all heads' outputs together."""
    return float(torch.sqrt(measured.tally.error.sum() / measured.norm.sum()))
