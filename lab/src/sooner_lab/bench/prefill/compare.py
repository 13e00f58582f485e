"""A searched row of heads against one vertical-slash for all, at equal FLOPs (MInference)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sooner.sparse.attention import States
from sooner.sparse.attention.run import jobs
from sooner.sparse.modality import MODALITIES, PromptLayout
from sooner.sparse.patterns import HeadPattern, VerticalSlash
from sooner.sparse.patterns.static import FIRST, NEAR
from sooner.sparse.probe import LAST
from sooner.sparse.search.dense_attention import AskedQueries
from sooner.sparse.search.score import Trial, trial

RATIOS = (0.25, 1.0, 4.0)
"""Vertical lines for each slash line, of the vertical-slashes that are tried."""

FAR = 4
"""Slash lines beyond the nearest that a rival has in any case, even where they cost more than the
searched patterns do: without any it would be a local window."""


@dataclass(frozen=True)
class Duel:
    """Errors at equal FLOPs.

    Attributes:
        ours, theirs: relative output error over all heads together, on queries that chose neither
            the patterns, nor their lines, nor the rival.
        our_share, their_share: of dense attention's pairs, exactly, mean over heads.
        rival: the vertical-slash, the best of those that cost as much.
        queries: on which both were judged.
    """

    ours: float
    theirs: float
    our_share: float
    their_share: float
    rival: VerticalSlash
    queries: int

    @property
    def rival_far(self) -> int:
        """Slash lines of the rival beyond the nearest."""
        return self.rival.slash - NEAR


def against_vertical_slash(
    states: States, layout: PromptLayout, patterns: Sequence[HeadPattern], queries: int = 128
) -> Duel:
    """Compare patterns with the best uniform vertical-slash of the same FLOPs.

    For several ratios of vertical to slash lines, the fewest lines are found that cost 99 % of what
    `patterns` do, or more: slash lines come in windows of 64 keys. The rival is the one of least
    error on the queries that a search with as many of them asks. Both are judged on others.

    Args:
        patterns: one for each head, chosen on `queries` of each modality at most; see `survey`.
        queries: of each modality that are asked.

    Raises:
        SoonerError: every query had a part in choosing.
    """
    wanted = pair_share(patterns, states, layout)
    rivals = [_as_costly(states, layout, ratio, wanted) for ratio in RATIOS]
    heads = states.queries.shape[0]
    errors = [total_error(trial(states, layout, [one] * heads, queries)) for one in rivals]
    rival = rivals[errors.index(min(errors))]
    used = choosing(states, layout, queries)
    mine, theirs = (
        trial(states, layout, each, queries, without=used) for each in (patterns, [rival] * heads)
    )
    judged = len(AskedQueries.of(states, layout, queries, without=used).slots)
    share = pair_share([rival] * heads, states, layout)
    return Duel(total_error(mine), total_error(theirs), wanted, share, rival, judged)


def choosing(states: States, layout: PromptLayout, queries: int) -> Tensor:
    """Slots of the queries used to choose: a survey's, and the last ones, which give the lines."""
    asked = [AskedQueries.of(states, layout, queries).slots]
    asked += [layout.where(name)[-LAST:] for name in (None, *MODALITIES)]
    return torch.cat(asked).unique()


def _as_costly(states: States, layout: PromptLayout, ratio: float, wanted: float) -> VerticalSlash:
    """The vertical-slash of the fewest lines that costs about `wanted`, or more."""
    heads = states.queries.shape[0]
    low, high = FAR - 1, len(layout)
    while high - low > 1:
        middle = (low + high) // 2
        share = pair_share([_sized(middle, ratio)] * heads, states, layout)
        low, high = (low, middle) if share >= 0.99 * wanted else (middle, high)
    return _sized(high, ratio)


def _sized(lines: int, ratio: float) -> VerticalSlash:
    return VerticalSlash(FIRST + round(lines * ratio), NEAR + lines)


def total_error(measured: Trial) -> float:
    """Relative error of all heads' outputs together."""
    return float(torch.sqrt(measured.tally.error.sum() / measured.norm.sum()))


def pair_share(patterns: Sequence[HeadPattern], states: States, layout: PromptLayout) -> float:
    """Return the share of causal attention's query-key pairs that the heads compute, exactly."""
    tokens = len(layout.where())
    total = sum(int(job.pairs.sum()) for job in jobs(states, layout, patterns))
    return total / (max(tokens * (tokens + 1) // 2, 1) * len(patterns))
