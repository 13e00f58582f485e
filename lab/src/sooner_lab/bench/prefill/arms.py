"""The patterns of the arms, sized for a prompt."""

from __future__ import annotations

import math

from sooner.sparse.patterns import (
    AShape,
    Dense,
    Grid,
    HeadPattern,
    TwoDBoundary,
    VerticalSlash,
)

from ...rivals.patterns import Strided

SINK = 128
BOTTOM = 128


def pattern(name: str, tokens: int, budget: float) -> HeadPattern:
    """What every head of an arm runs on a prompt of `tokens` (table 2 of MMInference).

    `planted` is the structure that the made-up states of the one layer have; `ours`, which is
    searched, has no one pattern.

    Args:
        budget: share of the causal pairs for the arms with a free local window, a-shape and
            tri-shape; the paper sizes theirs to match its own FLOPs.
    """
    sink = min(SINK, tokens // 16)
    local = local_window(tokens, sink, budget)
    made: dict[str, HeadPattern] = {
        "dense": Dense(),
        "a-shape": AShape(sink, local),
        "tri-shape": AShape(sink, local, bottom=min(BOTTOM, tokens // 16)),
        "strided": Strided("frame"),
        "vertical-slash": VerticalSlash.sized(tokens),
        "grid": Grid("frame"),
        "planted": TwoDBoundary({"video:video": Grid("frame")}),
    }
    return made[name]


def local_window(tokens: int, sink: int, budget: float) -> int:
    """The window with which an A-shape computes `budget` of the causal pairs.

    A window of `w` and a sink of `s` see `n(w + s) - (w + s)^2 / 2` of `n^2 / 2` pairs.
    """
    seen = tokens * (1 - math.sqrt(max(1 - budget, 0.0)))
    return max(int(seen) - sink, 1)
